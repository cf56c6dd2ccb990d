"""Asks members, one task for each that is up, in one event loop: a learner for its status, with requests to it; others whether
they are alive, as a kubelet does. A member that does not answer holds up no other.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from rljob.api.learner_status import LearnerStatus
from rljob.api.live import digest

from rljob_operator.polls.reach import TIMEOUT_SECONDS, USUAL_BYTES, NoAnswer, Reach, TooLong

log = logging.getLogger(__name__)

NO_ANSWER: Final = "does not answer"
STANDS_STILL: Final = "answers, but its loop stands still"

PERIOD_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 1.0
"""From one request to the next where the first had no answer: a member that leaves two unanswered is named within ten seconds."""
NEWS_SECONDS: Final = 15.0
"""A member that was silent for so long has been named. It is asked as often as any other, and its silence is no longer reported:
a thousand of them would have their jobs reconciled hundreds of times a second."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """``period_seconds``: between two answers of one member; ``again_seconds``, ``news_seconds``: as the constants."""

    period_seconds: float = PERIOD_SECONDS
    again_seconds: float = AGAIN_SECONDS
    news_seconds: float = NEWS_SECONDS

    def after_an_answer(self) -> float:
        """The pause before the next request, in seconds: random, so that thousands do not answer at once."""
        return self.period_seconds * random.uniform(0.8, 1.0)

    def after_silence(self, silent_seconds: float, asked_seconds: float) -> float:
        """The same where no answer came, ``silent_seconds`` after the first request without one; this one took
        ``asked_seconds``."""
        if not self.is_news(silent_seconds):
            return self.after_an_answer()
        return min(self.period_seconds, max(0.1, self.again_seconds - asked_seconds))

    def is_news(self, silent_seconds: float) -> bool:
        """Whether the job has to be reconciled for a member that is as silent as before."""
        return silent_seconds < self.news_seconds


_TURNS: Final = attrgetter(
    *("state", "epoch", "following", "scheduled", "fork", "standstill", "given_up", "checkpoint", "evaluations")
)
"""What a learner says beside figures, which are others in each answer."""
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Alive:
    """A member that should be alive. ``incarnation``: its life; another one's answers are not this one's. ``url``: of its metrics
    port, as the `Reach` names it."""

    incarnation: str
    url: str


@dataclass(frozen=True, slots=True)
class LearnerPoll(Alive):
    """A learner that should send its status: as `Alive`, and what a request to it carries."""

    token: str = ""


@dataclass(frozen=True, slots=True)
class Silence:
    """Since when a member does not answer as it should, Unix seconds, and how it fails to.

    ``heard_seconds``: for how long, as far as this process was there to hear: after the machine slept, or this process stood
    still, a member has its chance to answer before it counts.
    """

    since: float
    because: str
    heard_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of a job's learner.

    Attributes:
        status: its last answer, for decisions; None where it never gave one.
        missing: why the newest attempt brought nothing; empty where it did.
    """

    status: LearnerStatus | None = None
    missing: str = "the learner is not up yet"


@dataclass(slots=True)
class _Asked:
    member: Alive | LearnerPoll
    task: asyncio.Future[None] = field(init=False)
    silence: Silence | None = None
    ended: float = 0.0
    requests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # page -> document
    taken: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    is_long: bool = False
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class Poll(Generic[Key]):
    """For one event loop.

    Args:
        on_news: the key of whose members one has something new to tell: each answer of a learner, of others the first after a
            silence, and silence as long as it is news.
        reach: the way to members, closed with this.
        rhythm: how often a member is asked.
        now: Unix seconds; ``steady``: seconds in which the machine is awake.
        on_defect: told where a member is asked no more because of a mistake in here.
        on_figures: told in the place of ``on_news`` of an answer that differs from the one before in its figures alone.
    """

    def __init__(
        self,
        on_news: Callable[[Key], None],
        reach: Reach,
        *,
        rhythm: Rhythm = Rhythm(),
        now: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        on_defect: Callable[[BaseException], None] = lambda error: log.error(
            "a member is asked no more", exc_info=error
        ),
        on_figures: Callable[[Key], None] | None = None,
    ) -> None:
        self._on_news, self._reach, self._on_defect = on_news, reach, on_defect
        self._on_figures, self._long_answers = on_figures or on_news, asyncio.Semaphore(1)
        self._rhythm, self._now, self._steady = rhythm, now, steady
        self._asked: dict[Key, dict[str, _Asked]] = {}  # by incarnation
        self._answers: dict[Key, Answer] = {}

    def answer(self, key: Key) -> Answer:
        """What is known of the job's learner, whichever life of it."""
        return self._answers.get(key, Answer())

    def silence(self, key: Key, incarnation: str) -> Silence | None:
        """How this life of a member fails to answer; None where it answers, or was not asked yet."""
        asked = self._asked.get(key, {}).get(incarnation)
        return asked.silence if asked is not None else None

    def follow(
        self,
        key: Key,
        members: Iterable[Alive | LearnerPoll],
        checkpoint_seconds: float | None = None,
        ending: str | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        """Ask these from now on, and no others of the job; what its learner answered stays.

        ``checkpoint_seconds``: the request for a checkpoint that the learner has to answer, or None; see `Decision`. ``ending``:
        how the job ends, if the learner is to know. ``changes``: what it is to follow, see `Decision`. A new request is sent
        at once.
        """
        requests: dict[str, Mapping[str, Any]] = {}
        if checkpoint_seconds is not None:
            requests["checkpoint"] = {"sinceUnix": checkpoint_seconds}
        if changes is not None:
            requests["changes"] = changes
        if ending is not None:
            requests["ending"] = {"state": ending}
        known, wanted = self._asked.setdefault(key, {}), {member.incarnation: member for member in members}
        for incarnation in [each for each, asked in known.items() if wanted.get(each) != asked.member]:
            known.pop(incarnation).task.cancel()
        for incarnation, member in wanted.items():
            if incarnation not in known:
                asked = known[incarnation] = _Asked(member)
                asked.task = asyncio.ensure_future(self._ask(key, asked))
                asked.task.add_done_callback(self._ended)
            asked = known[incarnation]
            if isinstance(member, LearnerPoll):
                if any(asked.requests.get(page) != document for page, document in requests.items()):
                    asked.wake.set()
                asked.requests = requests
        if not known:
            del self._asked[key]

    def forget(self, key: Key) -> None:
        """The job is gone."""
        self.follow(key, ())
        self._answers.pop(key, None)

    async def close(self) -> None:
        """Stop asking."""
        tasks = [asked.task for known in self._asked.values() for asked in known.values()]
        for key in list(self._asked):
            self.follow(key, ())
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._reach.close()

    async def _ask(self, key: Key, asked: _Asked) -> None:
        while self._is_asked(key, asked):  # a cancellation may be lost where an answer comes at the same moment
            asked.wake.clear()
            passed_on = await self._pass_on(asked)
            began, steady, before, problem = self._now(), self._steady(), asked.silence, ""
            status: LearnerStatus | None = None
            try:
                if isinstance(asked.member, LearnerPoll):
                    status = await self._status(asked)
                else:
                    code, words = await self._reach.health(asked.member.url)
                    # A member with more callers than it has places for answers 503, too, and is alive.
                    problem = STANDS_STILL if code == 503 and words.strip() != "busy" else ""
            except (NoAnswer, ValueError) as error:
                problem = f"learner: {error}" if isinstance(asked.member, LearnerPoll) else NO_ANSWER
            if not self._is_asked(key, asked):
                return  # another life is asked by now, whose answer counts
            tell = self._on_news
            if isinstance(asked.member, LearnerPoll):
                former = self.answer(key).status
                said = status.for_decisions() if status is not None else former
                self._answers[key] = Answer(said, problem)
                if said and former and not (problem or before) and _TURNS(said) == _TURNS(former):
                    tell = self._on_figures
            asked.silence, news, pause = None, before is not None or status is not None, self._rhythm.after_an_answer()
            since, asked.ended = asked.ended, self._steady()
            changes = asked.requests.get("changes")
            if passed_on or (changes and status and status.following != digest(changes)):  # which is soon known
                pause = min(pause, self._rhythm.again_seconds)
            if problem:
                asked.silence = _longer(before, began, problem, asked.ended - steady, asked.ended - since)
                silent_seconds = began - asked.silence.since
                news = before is None or problem != before.because or self._rhythm.is_news(silent_seconds)
                pause = self._rhythm.after_silence(silent_seconds, asked.ended - steady)
            if news:
                tell(key)
            try:
                await asyncio.wait_for(asked.wake.wait(), pause)
            except TimeoutError:
                continue

    async def _status(self, asked: _Asked) -> LearnerStatus:
        """A long answer is read beside the event loop, one at a time: members that send such take little from all others."""
        began = self._now()
        if not asked.is_long:
            try:
                return LearnerStatus.answered(await self._reach.read(asked.member.url, "status", USUAL_BYTES), began)
            except TooLong:
                asked.is_long = True
        async with self._long_answers:
            began = self._now()
            body = await self._reach.read(asked.member.url, "status")
            return await asyncio.to_thread(LearnerStatus.answered, body, began)

    def _is_asked(self, key: Key, asked: _Asked) -> bool:
        return self._asked.get(key, {}).get(asked.member.incarnation) is asked

    def _ended(self, task: asyncio.Future[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_defect(error)

    async def _pass_on(self, asked: _Asked) -> bool:
        """Leave each request with the learner, until it has taken it; whether it took one."""
        member, before = asked.member, dict(asked.taken)
        if not isinstance(member, LearnerPoll):
            return False
        for page, document in asked.requests.items():
            if document != asked.taken.get(page) and await self._reach.send(member.url, page, document, member.token):
                asked.taken[page] = document
        return asked.taken != before


def _longer(before: Silence | None, began: float, because: str, asked_seconds: float, since_before: float) -> Silence:
    """The silence with one more request that had no answer."""
    if before is None:
        return Silence(began, because, min(asked_seconds, TIMEOUT_SECONDS))
    return Silence(before.since, because, before.heard_seconds + min(since_before, TIMEOUT_SECONDS + 1.0))

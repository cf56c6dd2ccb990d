"""Asks the replay shards of all jobs whether they are alive: one task a shard that is up, in one event loop.

Of a learner its status says that it answers (`learner_poll`); a shard has no status that decisions are made from, so its
`/healthz` is asked, as its kubelet does, but perhaps through the API server. A shard that does not answer is named; ending it is
its kubelet's.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from rljob_operator.kube.polls.reach import NoAnswer, Reach

PERIOD_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 1.0
"""From one question to the next where the first had no answer: two of them without one are named within ten seconds."""
NEWS_SECONDS: Final = 15.0
"""A member that was silent for so long has been named. It is asked as often as any other, and it is no news that it is silent: a
thousand of them would have their jobs looked at hundreds of times a second."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """``period_seconds``: between two answers of one member; ``again_seconds``, ``news_seconds``: as the constants."""

    period_seconds: float = PERIOD_SECONDS
    again_seconds: float = AGAIN_SECONDS
    news_seconds: float = NEWS_SECONDS

    def after_an_answer(self) -> float:
        """The pause before the next question, in seconds: so that thousands do not answer at once, never the same."""
        return self.period_seconds * random.uniform(0.8, 1.0)

    def after_silence(self, silent_seconds: float, asked_seconds: float) -> float:
        """The same where none came, ``silent_seconds`` after the first question without one; this one took ``asked_seconds``."""
        if not self.is_news(silent_seconds):
            return self.after_an_answer()
        return min(self.period_seconds, max(0.1, self.again_seconds - asked_seconds))

    def is_news(self, silent_seconds: float) -> bool:
        """Whether the job has to be looked at for a member that is as silent as before."""
        return silent_seconds < self.news_seconds


NO_ANSWER: Final = "does not answer"
STANDS_STILL: Final = "answers, but its loop stands still"

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Silence:
    """Since when a shard does not answer as it should, Unix seconds, and how it fails to."""

    since: float
    because: str


@dataclass(slots=True)
class _Asked:
    url: str
    task: asyncio.Future[None] = field(init=False)
    silence: Silence | None = None


class ShardPoll(Generic[Key]):
    """For one event loop. ``on_silence`` is told of questions without an answer, as long as that is news, and of the first answer
    after that; ``reach`` is the way to shards, and closed with this; ``rhythm``: how often a shard is asked."""

    def __init__(
        self,
        on_silence: Callable[[Key], None],
        reach: Reach,
        *,
        rhythm: Rhythm = Rhythm(),
        now: Callable[[], float] = time.time,
    ) -> None:
        self._on_silence, self._reach, self._now = on_silence, reach, now
        self._rhythm = rhythm
        self._asked: dict[Key, dict[str, _Asked]] = {}  # by incarnation

    def url(self, pod: Mapping[str, Any], port: int) -> str:
        """Where a shard's pod is asked."""
        return self._reach.url(pod, port)

    def silence(self, key: Key, incarnation: str) -> Silence | None:
        """How this life of a shard fails to answer; None where it answers, or was not asked yet."""
        asked = self._asked.get(key, {}).get(incarnation)
        return asked.silence if asked is not None else None

    def follow(self, key: Key, shards: Mapping[str, str]) -> None:
        """Ask these from now on, and no others of the job: incarnation -> where, as `url` says."""
        known = self._asked.setdefault(key, {})
        for incarnation in [each for each, asked in known.items() if shards.get(each) != asked.url]:
            known.pop(incarnation).task.cancel()
        for incarnation, url in shards.items():
            if incarnation not in known:
                asked = known[incarnation] = _Asked(url)
                asked.task = asyncio.ensure_future(self._ask(key, incarnation, asked))
        if not known:
            del self._asked[key]

    async def close(self) -> None:
        """Ask nobody any more."""
        tasks = [asked.task for known in self._asked.values() for asked in known.values()]
        for key in list(self._asked):
            self.follow(key, {})
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._reach.close()

    async def _ask(self, key: Key, incarnation: str, asked: _Asked) -> None:
        while self._asked.get(key, {}).get(incarnation) is asked:
            began = self._now()
            problem, before, pause = await self._problem(asked.url), asked.silence, self._rhythm.after_an_answer()
            asked.silence, news = None, before is not None
            if problem:
                asked.silence = Silence(before.since if before is not None else began, problem)
                silent_seconds = began - asked.silence.since
                pause = self._rhythm.after_silence(silent_seconds, self._now() - began)
                news = before is None or problem != before.because or self._rhythm.is_news(silent_seconds)
            if news:
                self._on_silence(key)
            await asyncio.sleep(pause)

    async def _problem(self, url: str) -> str:
        """What is wrong with the shard there; empty where it is alive."""
        try:
            code, words = await self._reach.health(url)
        except NoAnswer:
            return NO_ANSWER
        # One with more callers than places answers 503, too, and is alive.
        return STANDS_STILL if code == 503 and words.strip() != "busy" else ""

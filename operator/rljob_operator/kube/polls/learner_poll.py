"""Asks the learners of all jobs how they are, and for checkpoints: one task a learner that is up, in one event loop.

A learner that does not answer holds up nobody but itself. What is kept of an answer is what decisions are made from; a thousand
status documents would be most of the operator's memory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from rljob.api.learner_status import LearnerStatus

from rljob_operator.core.checkpoint_words import checkpoint_facts
from rljob_operator.core.observed import CheckpointFacts
from rljob_operator.kube.polls.reach import NoAnswer, Reach
from rljob_operator.kube.polls.shard_poll import Rhythm

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Learner:
    """A learner that serves.

    Attributes:
        incarnation: of its pod; another one's answers are not this one's.
        url: of its metrics port, as the `Reach` names it.
        token: what a request for a checkpoint carries.
    """

    incarnation: str
    url: str
    token: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of a job's learner.

    Attributes:
        status: what it said last, for decisions; None where it never did.
        missing: why the newest attempt brought none; empty where it did.
        silent_since: since when this learner has not answered, Unix seconds; None where it answers.
        checkpoint: what it says of its checkpoints.
    """

    status: LearnerStatus | None = None
    missing: str = "the learner is not up yet"
    silent_since: float | None = None
    checkpoint: CheckpointFacts = field(default_factory=CheckpointFacts)


@dataclass(slots=True)
class _Asked:
    learner: Learner
    task: asyncio.Future[None] = field(init=False)
    checkpoint_seconds: float | None = None
    passed_on: float | None = None
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class LearnerPoll(Generic[Key]):
    """For one event loop. ``on_answer`` is told of each answer, and of silence as long as it is news.

    Args:
        on_answer: the key whose learner has something new to tell.
        reach: the way to learners.
        rhythm: how often a learner is asked.
        now: Unix seconds.
    """

    def __init__(
        self,
        on_answer: Callable[[Key], None],
        reach: Reach,
        *,
        rhythm: Rhythm = Rhythm(),  # noqa: B008 - it can't be changed
        now: Callable[[], float] = time.time,
    ) -> None:
        self._on_answer, self._reach = on_answer, reach
        self._rhythm, self._now = rhythm, now
        self._asked: dict[Key, _Asked] = {}
        self._answers: dict[Key, Answer] = {}

    def url(self, pod: Mapping[str, Any], port: int) -> str:
        """Where a learner's pod is asked."""
        return self._reach.url(pod, port)

    def answer(self, key: Key) -> Answer:
        """What is known of the job's learner, whichever life of it."""
        return self._answers.get(key, Answer())

    def follow(self, key: Key, learner: Learner | None, checkpoint_seconds: float | None = None) -> None:
        """Ask this learner from now on; None asks nobody, while what was known stays.

        ``checkpoint_seconds``: the request for a checkpoint that it has to answer, or None; see `Decision`.
        """
        asked = self._asked.get(key)
        if asked is not None and asked.learner != learner:
            asked.task.cancel()
            del self._asked[key]
            asked = None
        known = self._answers.get(key)
        if asked is None and known is not None and known.silent_since is not None:
            self._answers[key] = replace(known, silent_since=None)  # the one before was silent, or was asked no more
        if learner is None:
            return
        if asked is None:
            asked = self._asked[key] = _Asked(learner)
            asked.task = asyncio.ensure_future(self._ask(key, asked))
        if checkpoint_seconds is not None and checkpoint_seconds != asked.checkpoint_seconds:
            asked.wake.set()
        asked.checkpoint_seconds = checkpoint_seconds

    def forget(self, key: Key) -> None:
        """The job is gone."""
        self.follow(key, None)
        self._answers.pop(key, None)

    async def close(self) -> None:
        """Ask nobody any more."""
        tasks = [asked.task for asked in self._asked.values()]
        for key in list(self._asked):
            self.follow(key, None)
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._reach.close()

    async def _ask(self, key: Key, asked: _Asked) -> None:
        while self._asked.get(key) is asked:  # a cancellation may be lost where an answer comes at the same moment
            asked.wake.clear()
            await self._pass_on(asked)
            began = self._now()
            try:
                content = await self._reach.read(asked.learner.url, "status")
                if self._asked.get(key) is not asked:
                    return  # another learner is asked by now, whose word counts
                status = LearnerStatus.answered(content, began)
            except (ValueError, NoAnswer) as problem:
                pause = self._note_silence(key, f"learner: {problem}", began)
            else:
                self._answers[key] = Answer(status.for_decisions(), "", None, checkpoint_facts(status.checkpoint))
                self._on_answer(key)
                pause = self._rhythm.after_an_answer()
            try:
                await asyncio.wait_for(asked.wake.wait(), pause)
            except TimeoutError:
                continue

    def _note_silence(self, key: Key, problem: str, moment: float) -> float:
        """How long to wait before the next question, in seconds."""
        known = self.answer(key)
        since = known.silent_since if known.silent_since is not None else moment
        self._answers[key] = replace(known, missing=problem, silent_since=since)
        if problem != known.missing or self._rhythm.is_news(moment - since):
            self._on_answer(key)
        return self._rhythm.after_silence(moment - since, self._now() - moment)

    async def _pass_on(self, asked: _Asked) -> None:
        """Ask for the checkpoint that is wanted, until the learner has taken the request."""
        wanted = asked.checkpoint_seconds
        if wanted is None or wanted == asked.passed_on:
            return
        learner = asked.learner
        if await self._reach.send(learner.url, "checkpoint", {"sinceUnix": wanted}, learner.token):
            asked.passed_on = wanted

"""What a cluster's operator and kubelets ask of pods, for the processes of one machine: whether each is alive, and of the learner
its status and checkpoints. A thread of its own sends the requests, so that a hanging or slow member never holds up the control
loop.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rljob.threads import SupervisedThread

from rljob_operator.local.reach import Loopback
from rljob_operator.polls.poll import Alive, Answer, Learner, Poll, Rhythm, Silence
from rljob_operator.polls.reach import TIMEOUT_SECONDS, Reach

ALIVE = Rhythm(2.0, 0.5, math.inf)
"""A silent member is asked again soon, so that it is soon noticed when it answers."""
STATUS = Rhythm(0.5)


class MemberPolls:
    """Asks whom ``watch`` names, until closed. ``now`` answers Unix seconds."""

    def __init__(
        self, now: Callable[[], float] = time.time, status: Rhythm = STATUS, reach: Reach | None = None
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._defect: BaseException | None = None
        reach = reach or Loopback()
        self._alive: Poll[str] = Poll(_nobody, reach, rhythm=ALIVE, now=now, on_defect=self._end)
        self._learner: Poll[str] = Poll(_nobody, reach, rhythm=status, now=now, on_defect=self._end)
        self._stop = threading.Event()
        self._thread = SupervisedThread("member-polls", self._run, until=self._stop)
        self._thread.start()

    def watch(
        self,
        alive: Iterable[Alive],
        learner: Learner | None,
        checkpoint_seconds: float | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        """These are the members that should answer now. ``checkpoint_seconds``: the request for a checkpoint that the learner has
        to answer, or None; ``changes``: what it is to follow. Raises ``ThreadEnded`` where a defect has ended the asking."""
        self._thread.check()
        members, learners = list(alive), [learner] if learner is not None else []

        def follow() -> None:
            self._alive.follow("", members)
            self._learner.follow("", learners, checkpoint_seconds, changes=changes)

        self._loop.call_soon_threadsafe(follow)

    def silence(self, incarnation: str) -> Silence | None:
        """How this life of a member fails to answer; None where it answers, or was not asked yet."""
        return self._alive.silence("", incarnation)

    @property
    def answer(self) -> Answer:
        """What is known of the learner."""
        return self._learner.answer("")

    def close(self) -> None:
        """Stop asking."""
        self._stop.set()
        if self._thread.alive:
            self._loop.call_soon_threadsafe(self._loop.stop)
        # Not sooner, and not by the thread: a loop that is closed refuses what ``watch`` and ``close`` schedule.
        if self._thread.close(timeout_seconds=TIMEOUT_SECONDS + 1.0):
            self._loop.close()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
            if self._defect is not None:
                raise self._defect
        finally:
            for poll in (self._alive, self._learner):
                self._loop.run_until_complete(poll.close())

    def _end(self, defect: BaseException) -> None:
        self._defect = defect
        self._loop.stop()


def _nobody(job: str) -> None:
    """The control loop looks by itself."""

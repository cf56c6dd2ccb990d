"""The loop of one job: observe, decide, apply, report."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FrameType
from typing import Protocol

from rljob.api import RLJob
from rljob.api.status import RLJobStatus

from rljob_operator.decide import decide
from rljob_operator.model import Decision, Observation, Session

TICK_SECONDS = 0.5


class Substrate(Protocol):
    """Where members of a job run. Two verbs; see `rljob_operator.local.substrate`."""

    def observe(self) -> Observation:
        """What is there now. What only the controller knows (status, session) is left as it is."""

    def apply(self, decision: Decision) -> None:
        """Start and drain what the decision names; both are idempotent."""


@dataclass(frozen=True, slots=True)
class Tick:
    """One turn of the loop, for those who show or record it."""

    observation: Observation
    decision: Decision
    elapsed_seconds: float


class Interrupt:
    """Ctrl-C and SIGTERM as a flag. The first asks for an orderly end; the second of either kind gives up at once."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def install(self) -> None:
        """Take over SIGINT and SIGTERM of this process."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def set(self) -> None:
        """Ask for an orderly end, as the first signal does."""
        self._event.set()

    @property
    def requested(self) -> bool:
        """Whether an orderly end has been asked for."""
        return self._event.is_set()

    def wait(self, seconds: float) -> None:
        """Sleep, but not past the first request."""
        if self.requested:
            time.sleep(seconds)
        else:
            self._event.wait(seconds)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self._event.set()


def run_job(
    job: RLJob,
    substrate: Substrate,
    *,
    interrupt: Interrupt,
    status: RLJobStatus,
    max_seconds: float | None = None,
    report: Callable[[Tick], None],
) -> Decision:
    """Run ``job`` on ``substrate`` until it is over and nothing of it runs any more; answers the last decision.

    ``status`` is what the controller before wrote, or a new one.
    """
    started = time.monotonic()
    while True:
        elapsed = time.monotonic() - started
        session = Session(elapsed, max_seconds, interrupt.requested)
        observation = replace(substrate.observe(), status=status, session=session)
        decision = decide(job, observation, time.time())
        status = decision.status
        substrate.apply(decision)
        report(Tick(observation, decision, elapsed))
        if decision.finished:
            return decision
        interrupt.wait(TICK_SECONDS)

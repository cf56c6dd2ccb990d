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
from rljob_operator.model import Decision, Observation, Refusal, Session
from rljob_operator.wall_clock import WallClock

TICK_SECONDS = 0.5


class Substrate(Protocol):
    """Where members of a job run. Two verbs; see `rljob_operator.local.substrate`."""

    def observe(self, job: RLJob) -> Observation:
        """What is there now. What only the controller knows (status, generation, session) is left as it is."""

    def apply(self, job: RLJob, decision: Decision) -> None:
        """Start and drain what the decision names; both are idempotent."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The stored object as the controller takes it: the spec in force, and what was refused of a newer one."""

    job: RLJob
    generation: int
    checkpoint_requested_at: str = ""
    refusal: Refusal | None = None


class Store(Protocol):
    """Where the object is stored: spec and annotations to read, status to write."""

    def wanted(self) -> Wanted:
        """The object as it is now."""

    def write_status(self, status: RLJobStatus, *, at_once: bool) -> None:
        """Store a status; ``at_once`` where something is about to be done that it must not forget."""


@dataclass(frozen=True, slots=True)
class Tick:
    """One turn of the loop, for those who show or record it."""

    job: RLJob
    observation: Observation
    decision: Decision
    elapsed_seconds: float


class Interrupt:
    """Ctrl-C, SIGTERM and the end of the terminal as a flag. The first asks for an orderly end; a second Ctrl-C or SIGTERM
    gives up at once."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def install(self) -> None:
        """Take over SIGINT, SIGTERM and SIGHUP of this process."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
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
        if self.requested and number != signal.SIGHUP:
            raise KeyboardInterrupt
        self._event.set()


def run_job(
    store: Store,
    substrate: Substrate,
    status: RLJobStatus,
    *,
    interrupt: Interrupt,
    clock: WallClock,
    max_seconds: float | None = None,
    report: Callable[[Tick], None],
) -> Decision:
    """Run the stored job on ``substrate`` until it is over and nothing of it runs any more; answers the last decision.

    ``status`` is what the controller before wrote, or a new one. A bound in ``max_seconds`` counts time in which the machine is
    awake, whatever becomes of the time of day.
    """
    started = time.monotonic()
    while True:
        wanted = store.wanted()
        elapsed = time.monotonic() - started
        seen = substrate.observe(wanted.job)
        now, leap = clock.look()
        observation = replace(
            seen,
            leap_seconds=leap,
            status=status,
            generation=wanted.generation,
            checkpoint_requested_at=wanted.checkpoint_requested_at,
            refusal=wanted.refusal,
            session=Session(elapsed, max_seconds, interrupt.requested),
        )
        decision = decide(wanted.job, observation, now)
        # What is about to be done goes to the disk first: a start replaces the very evidence of the end that was counted.
        store.write_status(decision.status, at_once=_acts(decision) or decision.state != status.state)
        substrate.apply(wanted.job, decision)
        status = decision.status
        report(Tick(wanted.job, observation, decision, elapsed))
        if decision.finished:
            return decision
        interrupt.wait(TICK_SECONDS)


def _acts(decision: Decision) -> bool:
    acts = decision.start or decision.drain or decision.replace or decision.remove
    return bool(acts or decision.finished or decision.notes)

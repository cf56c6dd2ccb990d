"""The loop of one job on this machine: gather, decide (`rljob_operator.core.turn`), store the status, carry out, and again, until
a signal ends the session.
"""

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from rljob.api.status import RLJobStatus

from rljob_operator.core.decision import Decision
from rljob_operator.core.desired import Session
from rljob_operator.core.turn import StatusWrite, Turn, turn
from rljob_operator.local.spec_store import StoredRun
from rljob_operator.local.substrate import LocalSubstrate


def raise_when_asked_to_end() -> None:
    """Until an `Interrupt` is installed: SIGTERM raises KeyboardInterrupt, as Ctrl-C does, also where it came while the process
    that started this one had blocked it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


class Interrupt:
    """Whether an orderly end was asked for. The first signal asks for it; a second Ctrl-C or SIGTERM gives up at once."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def install(self) -> None:
        """Take over SIGINT, SIGTERM and SIGHUP of this process."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

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


TURN_SECONDS = 0.5
_LOOKS = 10
"""Looks at what is stored in the time of a turn: an edit is followed at once."""


def run_job(
    stored: StoredRun,
    substrate: LocalSubstrate,
    status: RLJobStatus,
    *,
    interrupt: Interrupt,
    max_seconds: float | None = None,
    report: Callable[[Turn], None],
    clock: Callable[[], float] = time.time,
) -> Decision:
    """Run the stored job on ``substrate`` until it is over and nothing of it runs any more; answers the last decision.

    ``status`` is what the controller before wrote, or a new one. A bound in ``max_seconds`` counts time in which the machine is
    awake, whatever becomes of the time of day, which ``clock`` tells in Unix seconds.
    """
    started = time.monotonic()
    while True:
        desired = stored.desired()
        session = Session(time.monotonic() - started, max_seconds, interrupt.requested)
        now = turn(desired, status, substrate.observe(desired.job), clock(), session)
        decision = now.decision
        # The status goes to the disk first: a start replaces the very evidence of the end that was counted.
        stored.write_status(decision.status, at_once=now.write in (StatusWrite.BEFORE_ACTING, StatusWrite.SOON))
        substrate.apply(desired.job, decision)
        status = decision.status
        report(now)
        if decision.finished:
            return decision
        for _ in range(_LOOKS):
            if not stored.spec.edited:
                interrupt.wait(TURN_SECONDS / _LOOKS)

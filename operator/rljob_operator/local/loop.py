"""The loop of one job on this machine: gather, decide (`rljob_operator.core.turn`), store the status, carry out, and again."""

from __future__ import annotations

import time
from collections.abc import Callable

from rljob.api.status import RLJobStatus

from rljob_operator.core.decision import Decision
from rljob_operator.core.desired import Session
from rljob_operator.core.turn import StatusWrite, Turn, turn
from rljob_operator.local.interrupt import Interrupt
from rljob_operator.local.stored_run import StoredRun
from rljob_operator.local.substrate import LocalSubstrate

TURN_SECONDS = 0.5


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
        observed = substrate.observe(desired.job)
        now = turn(desired, status, observed, clock(), session)
        decision = now.decision
        # What is about to be done goes to the disk first: a start replaces the very evidence of the end that was counted.
        at_once = now.write in (StatusWrite.BEFORE_ACTING, StatusWrite.SOON)
        stored.write_status(decision.status, at_once=at_once)
        substrate.apply(desired.job, decision)
        status = decision.status
        report(now)
        if decision.finished:
            return decision
        interrupt.wait(TURN_SECONDS)

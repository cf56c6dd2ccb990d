"""How a verb waits for what it has asked for."""

import time
from collections.abc import Callable
from typing import Final

from rljob.api.exit_codes import EXIT_FAILURE, EXIT_UNAVAILABLE
from rljob.errors import CommandRefused, UsageError

from rljob_operator.verbs.jobs import Job
from rljob_operator.view.job_view import JobView
from rljob_operator.view.reasons import ending

POLL_SECONDS: Final = 0.2
"""Between two checks of something on this machine."""


class NotReached(CommandRefused):
    """What was waited for did not happen; the message says what is instead. Exit code 1."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EXIT_FAILURE)


def wait_for(
    job: Job, generation: int, reached: Callable[[JobView], bool], what: str, timeout_seconds: float
) -> JobView:
    """Wait until ``reached``, seen by a controller that knows ``generation``. Raises NotReached and, for a refused edit,
    UsageError. A server that is away for a moment is waited for."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            seen = job.look(figures=False)
        except CommandRefused as problem:
            if problem.exit_code != EXIT_UNAVAILABLE or time.monotonic() >= deadline:
                raise
            time.sleep(job.pause_seconds)
            continue
        known = seen.status.observed_generation >= generation
        accepted = seen.status.condition("Accepted")
        if accepted is not None and accepted.status == "False" and accepted.observed_generation >= generation:
            raise UsageError(accepted.message)
        if known and reached(seen):
            return seen
        if known and seen.status.finished:
            raise NotReached(f"the run has ended: {ending(seen)}")
        if not seen.attended:
            raise NotReached("what was asked is stored and waits for a controller")
        if time.monotonic() >= deadline:
            doubt = f"; {seen.problem}" if seen.problem else ""
            raise NotReached(
                f"not {what} within {timeout_seconds:g} s; it is {seen.state}: see `{job.command('why')}`{doubt}"
            )
        time.sleep(job.pause_seconds)


def without_controller(seen: JobView) -> str:
    """A sentence for a run without a controller: what goes on, and how to start one."""
    left = f"{len(seen.running)} of its processes are ending" if seen.running else "nothing of it runs"
    return f"no controller has {seen.place} ({left}); start one with `{seen.resumed_by}`"

"""What the verbs share: how a run is named, and how one waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rljob.errors import UsageError

from rljob_operator.local.job_view import look
from rljob_operator.local.run_folder import resume_command
from rljob_operator.view.job_view import JobView
from rljob_operator.view.reasons import ending

RunArgument = Annotated[
    Path | None,
    typer.Argument(metavar="RUN", help="The run's folder.", show_default="the newest under runs/"),
]
WaitOption = Annotated[bool, typer.Option("--wait", help="Return when it has happened, or say why it can't.")]
TimeoutOption = Annotated[float, typer.Option("--timeout", min=1, help="Longest wait in seconds.")]

POLL_SECONDS = 0.2


class NotReached(RuntimeError):
    """What was waited for did not happen; the message says what is instead. Exit code 1."""


def wait_for(
    run_dir: Path, generation: int, reached: Callable[[JobView], bool], what: str, timeout_seconds: float
) -> JobView:
    """Wait until ``reached``, seen by a controller that knows ``generation``. Raises NotReached and, for a refused edit,
    UsageError."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        seen = look(run_dir, figures=False)
        known = seen.status.observed_generation >= generation
        accepted = seen.status.condition("Accepted")
        if accepted is not None and accepted.status == "False" and accepted.observed_generation >= generation:
            raise UsageError(accepted.message)
        if known and reached(seen):
            return seen
        if known and seen.status.finished:
            raise NotReached(f"the run has ended: {ending(seen)}")
        if seen.controller is None:
            raise NotReached(f"{without_controller(seen)}; what was asked is stored and waits for it")
        if time.monotonic() >= deadline:
            raise NotReached(f"not {what} within {timeout_seconds:g} s; it is {seen.state}: see `rljob why {run_dir}`")
        time.sleep(POLL_SECONDS)


def without_controller(seen: JobView) -> str:
    """A sentence for a run that no controller has: what goes on, and what would bring one."""
    left = f"{len(seen.running)} of its processes run on" if seen.running else "nothing of it runs"
    return f"no controller has {seen.run_dir} ({left}); start one with `{resume_command(seen.run_dir)}`"

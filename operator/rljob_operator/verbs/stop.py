"""``rljob stop``: end a run in good order, whether its controller lives or not."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rljob.command_errors import one_line_errors

from rljob_operator.local import lock
from rljob_operator.local.job_view import look
from rljob_operator.local.run_folder import chosen_run
from rljob_operator.verbs.options import POLL_SECONDS, NotReached, TimeoutOption


def stop(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder.", show_default=False)],
    timeout: TimeoutOption = 180.0,
) -> None:
    """End a run as Ctrl-C in its terminal would: drain, checkpoint, stop. It can be resumed.

    Where its controller is dead (kill -9, for instance), the processes it left are drained and ended just the same.

    Example:

      rljob stop runs/pong-apex-20260101-120000
    """
    with one_line_errors():
        folder = chosen_run(run)
        controller = lock.owner(folder)
        if controller:
            _stop_through(folder, controller, timeout)
            return
        if not look(folder, figures=False).running:
            typer.echo(f"{folder}: nothing of it runs")
            return
        from rljob_operator.verbs.run import end  # it loads the environments, which takes a second

        end(folder, Console())


def _stop_through(folder: Path, controller: int, timeout_seconds: float) -> None:
    """Ask the controller, and wait for its end."""
    os.kill(controller, signal.SIGTERM)
    typer.echo(f"{folder}: its controller (pid {controller}) was asked to end the run")
    deadline = time.monotonic() + timeout_seconds
    while lock.owner(folder) == controller:
        if time.monotonic() >= deadline:
            raise NotReached(
                f"the controller (pid {controller}) has not ended within {timeout_seconds:g} s; see {folder}/logs"
            )
        time.sleep(POLL_SECONDS)
    typer.echo(f"{folder}: stopped")

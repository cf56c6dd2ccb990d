"""The controller of one run of an experiment: `rljob run` with its orders on standard input.

``python -m rljob_operator.verbs.experiment_run``: a line of JSON says what to run and where. The run is ended in good order when
standard input ends, which it does however the experiment's own controller ends.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rljob.command_errors import one_line_errors
from rljob.threads import start_contained

from rljob_operator.local import lock
from rljob_operator.local.run_folder import JOB_FILE, OUTCOME_FILE


def main() -> int:
    """Run until it is over; the exit code of `rljob run`."""
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as orders:
        order = json.loads(orders.readline())
    start_contained("orders", _end_with_the_input)
    with one_line_errors():
        return _run(Path(order["folder"]), order["job"], order["max_actors"])
    return 1


def _run(folder: Path, job: dict[str, Any], max_actors: int | None) -> int:
    """Start the run, or go on with what is there of it."""
    from rljob_operator.verbs import run  # what trains, which a base install lacks

    while lock.owner(folder) is not None:  # the controller of a session before, which is ending
        time.sleep(0.2)
    console = Console(width=200)
    if (folder / JOB_FILE).is_file():
        (folder / OUTCOME_FILE).unlink(missing_ok=True)  # that of the rung before
        return run.go_on(folder, job, max_seconds=None, max_actors=max_actors, console=console)
    if folder.exists() and not (folder / "checkpoints").exists():
        shutil.rmtree(folder)  # one that was never begun
    return run.start(job, folder, max_seconds=None, max_actors=max_actors, console=console)


def _end_with_the_input() -> None:
    while os.read(
        sys.stdin.fileno(), 1 << 16
    ):  # not by Python's own reader, whose lock this thread would hold at the exit
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    try:
        code = main()
    except typer.Exit as end:
        code = end.exit_code
    sys.exit(code)

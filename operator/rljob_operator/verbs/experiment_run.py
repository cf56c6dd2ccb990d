"""The controller of one run of an experiment, as a `Child` of the experiment's own: `rljob run` that ends in good order when that
one does."""

import shutil
from pathlib import Path
from typing import Any

from rich.console import Console
from rljob.command_errors import one_line_errors

from rljob_operator.local.run_folder import JOB_FILE, OUTCOME_FILE


def main(folder: Path, job: dict[str, Any], max_actors: int | None) -> int:
    """Run until it is over; the exit code of `rljob run`."""
    with one_line_errors():
        return _run(folder, job, max_actors)
    return 1


def _run(folder: Path, job: dict[str, Any], max_actors: int | None) -> int:
    """Start the run, or go on with what is there of it."""
    from rljob_operator.verbs import run  # what trains, which a base install lacks

    console = Console(width=200)
    if (folder / JOB_FILE).is_file():
        (folder / OUTCOME_FILE).unlink(missing_ok=True)  # that of the rung before
        return run.go_on(folder, job, max_seconds=None, max_actors=max_actors, console=console)
    if folder.exists() and not (folder / "checkpoints").exists():
        shutil.rmtree(folder)  # one that was never begun
    return run.start(job, folder, max_seconds=None, max_actors=max_actors, console=console)

"""The controllers of runs, as tests name them."""

from pathlib import Path

from rljob_operator.local.run_folder import holder


def controller_pid(folder: Path) -> int | None:
    """Process id of the controller that has ``folder`` and lives here; None where none does."""
    found = holder(folder)
    return found.process.pid if found is not None and found.process is not None and found.here else None

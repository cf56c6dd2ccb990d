"""How a job ends, from the controller to its trackers, which end last: it stands in the run's ``outcome.json``."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from rljob.telemetry.run_folder import OUTCOME_FILE

STATES: Final = ("Complete", "Failed", "Stopped", "Interrupted")


def note_ending(run_dir: Path, note: Mapping[str, Any]) -> None:
    """Write down how the job is about to end, ``{"state": "Complete"}``. Raises ValueError for any other note."""
    if note.get("state") not in STATES:
        raise ValueError(f'"state" is needed: one of {", ".join(STATES)}')
    (run_dir / OUTCOME_FILE).write_text(json.dumps({"state": note["state"]}))


def forget_ending(run_dir: Path) -> None:
    """It is not known any more: the job goes on."""
    (run_dir / OUTCOME_FILE).unlink(missing_ok=True)


def noted_ending(run_dir: Path) -> str:
    """One of ``STATES``; "Killed" where the run has ended, and how the job did is not known."""
    with suppress(OSError, ValueError):
        return str(json.loads((run_dir / OUTCOME_FILE).read_bytes()).get("state", ""))
    return "Killed"

"""``roles/clock.json``: what the clocks showed, so that the next controller can tell time that passed from a jump.

Steady clocks begin anew with each boot. Nothing of a run survives a boot either, so there is nothing to tell then.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from rljob_operator.local.run_folder import write_json

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def recorded_offset(run_dir: Path) -> float | None:
    """Wall less steady clock in seconds as a controller before left them, or None where this boot knows nothing of it."""
    try:
        document = json.loads(_path(run_dir).read_text())
        offset = document["wallLessSteadySeconds"]
        return float(offset) if document["bootId"] == _boot_id() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def record_offset(run_dir: Path, offset_seconds: float) -> None:
    """Note it. A disk that doesn't take it costs the next controller no more than that a jump counts as time."""
    with contextlib.suppress(OSError):
        write_json(_path(run_dir), {"bootId": _boot_id(), "wallLessSteadySeconds": offset_seconds})


def _path(run_dir: Path) -> Path:
    return run_dir / "roles" / "clock.json"


def _boot_id() -> str:
    return _BOOT_ID.read_text().strip()

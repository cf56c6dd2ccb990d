"""What trackers read of a run: its points, from its ``metrics.jsonl`` as it grows, each once; and how the job ends, which the
controller tells them in the run's ``outcome.json``: they end last."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

from rljob.telemetry.flat_figures import number
from rljob.telemetry.recorder import EVALUATION
from rljob.telemetry.run_folder import OUTCOME_FILE

_AXES = frozenset({"time_unix", "raw_frames"})


@dataclass(frozen=True, slots=True)
class Point:
    """What was known at one moment: finite numbers by the names that TensorBoard has, too. ``time_unix``, seconds since 1970,
    tells the points of a run apart."""

    time_unix: float
    raw_frames: int
    values: Mapping[str, float]


def point_of(line: bytes) -> Point | None:
    """The point in a line of ``metrics.jsonl``; None for a fact, for a checkpoint, and for a line that a crash cut short."""
    try:
        record: Any = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict) or record.get("kind") not in (None, EVALUATION):
        return None
    time_unix, raw_frames = number(record.get("time_unix")), number(record.get("raw_frames"))
    if time_unix is None or raw_frames is None:
        return None
    prefix = f"{EVALUATION}/" if "kind" in record else ""
    found = {f"{prefix}{name}": number(value) for name, value in record.items() if name not in _AXES}
    return Point(time_unix, int(raw_frames), {name: value for name, value in found.items() if value is not None})


class Follower:
    """Reads on in a ``metrics.jsonl``, after the point of ``last`` (its ``time_unix``; 0 for the beginning).

    The learner replaces the file by a thinner one when it has grown long, and a user may move a run: where the file is another
    one than before, the place is looked for again.
    """

    def __init__(self, path: Path, last: float = 0.0) -> None:
        self._path, self._last = path, last
        self._identity: tuple[int, int] | None = None
        self._offset_bytes = 0

    def read(self, most: int) -> list[Point]:
        """The next points, at most ``most``; none where nothing new is there yet. Raises OSError where it can't be read."""
        found: list[Point] = []
        with suppress(FileNotFoundError), self._path.open("rb") as file:  # there is none before the learner begins
            self._find(file)
            for line in file:
                if len(found) == most or not line.endswith(b"\n"):
                    break
                self._offset_bytes += len(line)
                if point := point_of(line):
                    found.append(point)
                    self._last = point.time_unix
        return found

    def _find(self, file: BufferedReader) -> None:
        """Go to where reading goes on."""
        stat = os.fstat(file.fileno())
        if (stat.st_dev, stat.st_ino) != self._identity or stat.st_size < self._offset_bytes:
            self._identity = stat.st_dev, stat.st_ino
            self._offset_bytes = _after(file, self._last) if self._last else 0
        file.seek(self._offset_bytes)


def _after(file: BufferedReader, last: float) -> int:
    """Where the line after the point of ``last`` begins, in bytes; where that one is gone, the first of a later one."""
    later = None
    while line := file.readline():
        time_unix = point.time_unix if (point := point_of(line)) else 0.0
        if time_unix == last:
            return file.tell()
        if later is None and time_unix > last:
            later = file.tell() - len(line)
    return file.tell() if later is None else later


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

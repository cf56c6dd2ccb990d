"""What every tracker is to the process that feeds it, and what it is told of the job.

Which points have been handed over, in a file of eight bytes a point that a killed process leaves whole.
"""

import json
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from rljob.api import RLJob
from rljob.api.job import TrackingSpec
from rljob.errors import UsageError

_TIME = struct.Struct("<d")


class Sent:
    """The ``time_unix`` of every point that was handed over, in their order: the n-th one is the n-th point at the server."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()
        self._cut(len(self))  # a kill in the middle of a write leaves a part of an entry

    def __len__(self) -> int:
        return self._path.stat().st_size // _TIME.size

    @property
    def last(self) -> float:
        """That of the last point; 0 where there is none."""
        with self._path.open("rb") as file:
            file.seek(max(0, len(self) - 1) * _TIME.size)
            data = file.read(_TIME.size)
        return float(_TIME.unpack(data)[0]) if data else 0.0

    def add(self, *times_unix: float) -> None:
        """Points that follow."""
        with self._path.open("ab") as file:
            file.write(b"".join(map(_TIME.pack, times_unix)))

    def adjust(self, count: int, last: float) -> None:
        """The server has ``count`` points: what was handed over beyond them is forgotten. Where it has more than are known here,
        because this folder is a new one, the last of them is that of ``last``."""
        if count > len(self):
            self.add(*[max(self.last, last)] * (count - len(self)))
        self._cut(count)

    def _cut(self, count: int) -> None:
        with self._path.open("r+b") as file:
            file.truncate(count * _TIME.size)


if TYPE_CHECKING:  # a process that only starts trackers does without what reads a record
    from rljob.tracking.points import Point

FOLDER: Final = "tracking"
"""The folder in a run's, in which trackers keep what they have sent: ``<name>.json`` says how it goes."""
IDENTITY_VARIABLE: Final = "RLJOB_RUN_ID"
"""What the run is found by at the trackers; where it is not set, a random one is made once and kept in the folder."""
TRACKERS: Final = {"wandb": "W&B", "mlflow": "MLflow"}
"""Field of ``spec.tracking``, extra and module of the client -> what it is called."""
HUNG_SECONDS: Final = 120.0
"""A client may take so long to load and to be told that its server does not answer."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run as it is told to a tracker.

    Args:
        identity: what the run is found by there, the same in every process that sends of it.
        folder: where a client may write.
        sent: what has been handed over to this tracker.
    """

    identity: str
    job: RLJob
    folder: Path
    sent: Sent

    @property
    def asked(self) -> TrackingSpec:
        """What the job says of trackers."""
        return self.job.spec.tracking or TrackingSpec()

    def config(self) -> dict[str, Any]:
        """What was run: on top what others filter runs by, then the spec in force. Variables, patches of pods and credentials are
        left out, because they may hold secrets."""
        spec = self.job.model_dump(mode="json", by_alias=True, exclude_none=True)["spec"]
        for section in spec.values():
            for private in ("env", "podTemplate"):
                if isinstance(section, dict):
                    section.pop(private, None)
        spec.pop("tracking", None)
        return {
            "env_id": self.job.spec.environment.id,
            "exp_name": self.job.metadata.name,
            "algo": self.job.spec.algorithm.type,
            **spec,
        }


class Tracker(Protocol):
    """A connection to one run at one server. Any method may raise what the client raises; then it is opened anew."""

    @property
    def url(self) -> str:
        """Where the run can be looked at; empty where that is not known."""

    def send(self, points: "Sequence[Point]") -> None:
        """Hand over the points that follow."""

    def finish(self, state: str) -> None:
        """Wait until all of it is there. ``state``: how the run ended, as in ``outcome.json``; empty where it may go on."""


def trackers_of(tracking: TrackingSpec | None) -> tuple[str, ...]:
    """The trackers that a job names, by their fields."""
    return tuple(name for name in TRACKERS if getattr(tracking, name, None) is not None)


def untracked(folder: Path, names: Sequence[str], since_unix: float) -> dict[str, str] | None:
    """Trackers that take no points -> why, by what each has written in ``folder``; None before it is known of all.

    ``since_unix``: what was written before is of an earlier process.
    """
    found = {}
    for name in names:
        state: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            state = json.loads((folder / f"{name}.json").read_bytes())
        heard = max(since_unix, float(state.get("time_unix", 0.0)))
        if time.time() - heard > HUNG_SECONDS:
            found[TRACKERS[name]] = f"its tracker did not answer for {HUNG_SECONDS:.0f} s"
        elif heard == since_unix:
            return None
        elif state["problem"]:
            found[TRACKERS[name]] = state["problem"]
    return found


def wanted(tracking: TrackingSpec | None) -> tuple[str, ...]:
    """The trackers that a job names, by their fields. Raises UsageError, in one line that says what to install, where the client
    of one is missing."""
    found = trackers_of(tracking)
    for name in found:
        spec = find_spec(name)
        if spec is None or spec.origin is None:  # a mere folder of that name, as both clients leave them behind
            raise UsageError(
                f"spec.tracking.{name}: the client of {TRACKERS[name]} is not installed: pip install 'rljob[{name}]', "
                f"or leave the field out and send the run later with `rljob track`"
            )
    return found


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dots in the names."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) and value else {f"{prefix}{name}": value}
    return found

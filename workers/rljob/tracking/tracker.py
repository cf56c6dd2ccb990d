"""Which trackers a job names, what they are told of it, and how it goes with each: ``tracking/NAME.json`` in the run folder."""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from rljob.api import RLJob
from rljob.api.job import TrackingSpec
from rljob.errors import UsageError

FOLDER: Final = "tracking"
"""The folder in a run's, in which trackers keep what they know."""
IDENTITY_VARIABLE: Final = "RLJOB_RUN_ID"
"""What the run is found by at the trackers."""
TRACKERS: Final = {"wandb": "W&B", "mlflow": "MLflow"}
"""Field of ``spec.tracking``, extra and module of the client -> what it is called."""
HUNG_SECONDS: Final = 120
"""A client may take so long to load and to be told that its server does not answer."""


@dataclass(slots=True)
class State:
    """How it goes with one tracker.

    Attributes:
        points: how many have been handed over. last: ``time_unix`` of the last of them; 0 where there is none.
        problem: why the last try failed; empty where it did not.
        url: where the run can be looked at; empty where that is not known.
        done: whether all has been sent and the process ends.
    """

    points: int = 0
    last: float = 0.0
    problem: str = ""
    url: str = ""
    done: bool = False


def state_in(file: Path) -> dict[str, Any]:
    """What a tracker has written of its `State`, with its ``pid`` and when, ``time_unix``; empty where that can't be read."""
    with suppress(OSError, ValueError):
        return dict(json.loads(file.read_bytes()))
    return {}


def config(job: RLJob) -> dict[str, Any]:
    """What was run: on top what others filter runs by, then the spec in force. Variables, patches of pods and credentials are
    left out, because they may hold secrets."""
    spec = job.model_dump(mode="json", by_alias=True, exclude_none=True)["spec"]
    for section in spec.values():
        for private in ("env", "podTemplate"):
            if isinstance(section, dict):
                section.pop(private, None)
    spec.pop("tracking", None)
    told = {"env_id": job.spec.environment.id, "exp_name": job.metadata.name, "algo": job.spec.algorithm.type}
    return {**told, **spec}


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dots in the names."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) and value else {f"{prefix}{name}": value}
    return found


def trackers_of(tracking: TrackingSpec | None) -> tuple[str, ...]:
    """The trackers that a job names, by their fields."""
    return tuple(name for name in TRACKERS if getattr(tracking, name, None) is not None)


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


def untracked(folder: Path, names: Sequence[str], since_unix: float) -> dict[str, str] | None:
    """Trackers that take no points -> why, by what each has written in ``folder``; None before it is known of all.

    ``since_unix``: what was written before is of an earlier process.
    """
    found = {}
    for name in names:
        state = state_in(folder / f"{name}.json")
        heard = max(since_unix, float(state.get("time_unix", 0.0)))
        if time.time() - heard > HUNG_SECONDS:
            found[TRACKERS[name]] = f"its tracker did not answer for {HUNG_SECONDS} s"
        elif heard == since_unix:
            return None
        elif state["problem"]:
            found[TRACKERS[name]] = state["problem"]
    return found

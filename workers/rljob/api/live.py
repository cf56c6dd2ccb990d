"""Live fields: values that a running learner takes between two updates. Each has the mark `rljob.api.mutability.LIVE`. And which
settings change what a job learns, by the marks on its fields, too."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from rljob.api import mutability
from rljob.api.algorithm import CUSTOM
from rljob.api.fields import TypedPlace
from rljob.api.job import RLJobSpec
from rljob.api.mutability import LIVE, Step, mark_of, places
from rljob.api.presets import leaves

M = TypeVar("M", bound=BaseModel)

_PLACES: Final = {each.path: each for each in places(RLJobSpec, whole_sections=False) if each.mutability == LIVE}
RATES: Final = {path: place for path, place in _PLACES.items() if "learning_rate" in place.name}
"""Step sizes, which stay as they are while they decay."""
_LADDER: Final = {path for path, place in _PLACES.items() if place.name.startswith("epsilon")}
"""How actors explore."""
DECAYS: Final = (
    "allowed: as it was while learningRateDecaySteps is above 0: the decay leads from it to learningRateFinal; set "
    "learningRateDecaySteps: 0, or suspend the job first"
)
CENTRAL: Final = "allowed: as it was with actors.inference: Central, whose actors get no weights; suspend the job first"


def live_values(spec: RLJobSpec) -> dict[str, Any]:
    """Every live field that a job in force has, by its path below ``spec``, and its value."""
    parents = {path: (place.parent_in(spec), place.name) for path, place in _PLACES.items()}
    found = {path: getattr(parent, name, None) for path, (parent, name) in parents.items()}
    return {path: value for path, value in found.items() if value is not None}


def wanted(spec: RLJobSpec) -> dict[str, Any]:
    """What a running learner is to follow, as JSON: the live values, the schedule, the fork, and the raw frames to end after."""
    ends = {"rawFrames": spec.success_policy.raw_frames}
    return {
        "live": live_values(spec),
        **ends,
        **spec.model_dump(mode="json", by_alias=True, include={"fork", "schedule"}),
    }


def digest(wanted: Mapping[str, Any]) -> str:
    """Names what is `wanted`."""
    return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:16]


def not_live(spec: RLJobSpec, path: str) -> str | None:
    """Why the field at ``path`` of a running job in force can't be changed, in words; None where it can."""
    if path not in (live := live_values(spec)):
        return f"allowed: live fields, which a running learner takes; with {spec.algorithm.type} {', '.join(live)}"
    return held(spec, path) or None


def held(spec: RLJobSpec, path: str) -> str:
    """Why a live field stays as it is while a job with this ``spec`` runs; empty where it may change."""
    if path in RATES and getattr(spec.algorithm, "learning_rate_decay_steps", None):
        return DECAYS
    # Weights tell actors how to explore; with Central inference servers have them, and actors none.
    return CENTRAL if path in _LADDER and spec.actors.inference == "Central" else ""


def with_live(spec: RLJobSpec, values: Mapping[str, Any]) -> RLJobSpec:
    """A copy of ``spec`` with these live values, by their paths. Raises KeyError for a path of no live field."""
    for path, value in values.items():
        spec = with_value(spec, _PLACES[path].steps, value)
    algorithm = spec.algorithm
    if algorithm.type != CUSTOM or not algorithm.is_loaded:
        return spec
    own = algorithm.parameters
    names = {_PLACES[path].name for path in values} & type(own).model_fields.keys()
    changed = own.updated(**{name: getattr(algorithm, name) for name in names})
    return spec.model_copy(update={"algorithm": algorithm.with_own(changed)})


def with_value(model: M, steps: tuple[Step, ...], value: Any) -> M:
    """A copy of ``model`` with ``value`` at the end of ``steps``; itself where a section on the way is not there."""
    name = steps[0].name
    if len(steps) == 1:
        return model.model_copy(update={name: value})
    section = getattr(model, name)
    return model if section is None else model.model_copy(update={name: with_value(section, steps[1:], value)})


def live_names(parameters: type[BaseModel]) -> frozenset[str]:
    """The Python names of the live fields of a parameter set."""
    return frozenset(name for name, field in parameters.model_fields.items() if mark_of(field) == LIVE)


def _unlearned(place: TypedPlace, above: str = "") -> Iterator[str]:
    for name, below in place.fields_below():
        if mutability.UNLEARNED in below.metadata:
            yield above + name
        else:
            yield from _unlearned(below, f"{above}{name}.")


def below_any(path: str, sections: Sequence[str]) -> bool:
    """Whether a setting is one of ``sections``, or lies in one."""
    return path.startswith(tuple(f"{section}." for section in sections)) or path in sections


UNLEARNED = tuple(_unlearned(TypedPlace(RLJobSpec)))
"""Fields and sections below ``spec`` in which jobs may differ that learn the same and are judged alike."""
_MAY_CHANGE = tuple(
    place.path
    for place in mutability.places(RLJobSpec, whole_sections=False)
    if place.mutability.when is not mutability.When.NEVER and below_any(place.path, UNLEARNED)
)


def as_begun(spec: Mapping[str, Any], *but: str) -> dict[str, Any]:
    """The settings of a spec, by their paths, that a run has to have again where it goes on as the same trial: all that change
    what is learned, or may never change, ``but`` these."""
    return {path: value for path, value in leaves(spec) if not below_any(path, (*_MAY_CHANGE, *but))}

"""What of a stored job may change, and when; made from the marks on the fields (`rljob.api.mutability`).

Live fields are values that a running learner takes between two updates. Rules of a change say what may never change, and what may
only change while the job is suspended. And which settings change what a job learns, by the marks on its fields, too.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from rljob.algorithms.built_in import BUILT_IN
from rljob.api.algorithm import CUSTOM, SHARED, never_changing
from rljob.api.effective import computed_words
from rljob.api.fields import TypedPlace, mark_in
from rljob.api.job import RLJob, RLJobSpec
from rljob.api.mutability import LIVE, UNLEARNED as _UNLEARNED_MARK, MarkedField, Mutability, Step, When, places
from rljob.api.parameters import TransitionParameterSet, UnrollParameterSet
from rljob.api.presets import leaves
from rljob.api.problems import ABSENT, Problem, value_at
from rljob.api.rule import KEYED, STORED
from rljob.api.rules.algorithm import TYPE
from rljob.api.types import plain_number
from rljob.sources import without_places

M = TypeVar("M", bound=BaseModel)

_LIVE_PLACES: Final = {each.path: each for each in places(RLJobSpec, whole_sections=False) if each.mutability == LIVE}
RATES: Final = {path: place for path, place in _LIVE_PLACES.items() if "learning_rate" in place.name}
"""Step sizes, which stay as they are while they decay."""
_LADDER: Final = {path for path, place in _LIVE_PLACES.items() if place.name.startswith("epsilon")}
"""How actors explore."""
DECAYS: Final = (
    "allowed: as it was while learningRateDecaySteps is above 0: the decay leads from it to learningRateFinal; set "
    "learningRateDecaySteps: 0, or suspend the job first"
)
CENTRAL: Final = "allowed: as it was with actors.inference: Central, whose actors get no weights; suspend the job first"


def live_values(spec: RLJobSpec) -> dict[str, Any]:
    """Every live field that a job in force has, by its path below ``spec``, and its value."""
    parents = {path: (place.parent_in(spec), place.name) for path, place in _LIVE_PLACES.items()}
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
        spec = with_value(spec, _LIVE_PLACES[path].steps, value)
    algorithm = spec.algorithm
    if algorithm.type != CUSTOM or not algorithm.is_loaded:
        return spec
    own = algorithm.parameters
    names = {_LIVE_PLACES[path].name for path in values} & type(own).model_fields.keys()
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
    return frozenset(name for name, field in parameters.model_fields.items() if mark_in(field, Mutability) == LIVE)


def _unlearned(place: TypedPlace, above: str = "") -> Iterator[str]:
    for name, below in place.fields_below():
        if _UNLEARNED_MARK in below.metadata:
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
    for place in places(RLJobSpec, whole_sections=False)
    if place.mutability.when is not When.NEVER and below_any(place.path, UNLEARNED)
)


def as_begun(spec: Mapping[str, Any], *but: str) -> dict[str, Any]:
    """The settings of a spec, by their paths, that a run has to have again where it goes on as the same trial: all that change
    what is learned, or may never change, ``but`` these."""
    return {path: value for path, value in leaves(spec) if not below_any(path, (*_MAY_CHANGE, *but))}


_SUSPEND_FIRST = (
    "may change only while the job is suspended; set spec.suspend: true, with it or before, and resume afterwards"
)
_PLACES = places(RLJobSpec)


def _new_job(mutability: Mutability) -> str:
    said = "it cannot be changed; make a new job"
    return f"{said}: {mutability.why}" if mutability.why else said


# ------------------------------------------------------------------------------------------------------------ in Python


def transition_problems(old: RLJob, new: RLJob) -> list[Problem]:
    """Why ``old`` may not become ``new``; both have been checked by themselves."""
    found = [
        Problem(f"metadata.{name}", given, "it cannot be changed; make a new job")
        for name in ("name", "namespace")
        if (given := getattr(new.metadata, name)) != getattr(old.metadata, name)
    ]
    runs = not (old.spec.suspend or new.spec.suspend)
    for path, value in _differences(old.spec, new.spec, ""):
        if why := _refused(new.spec, path, runs):
            found.append(Problem(f"spec.{path}", value, why))
    return found


def _refused(spec: RLJobSpec, path: str, runs: bool) -> str:
    """Why the field at ``path`` of a job that becomes ``spec`` may not change; empty where it may."""
    above = [place for place in _PLACES if f"{path}.".startswith(f"{place.path}.")]
    if not above:  # a section came or went, with what follows from others
        return ""
    place = max(above, key=lambda place: len(place.steps))
    mark = place.mutability
    if mark.when is not When.NEVER and place.path.startswith("algorithm.") and place.name in SHARED.values():
        mark = never_changing(_parameter_set(spec), place.name) or mark  # with some algorithms it never changes
    if mark.when is When.NEVER:
        return _new_job(mark)
    if runs:
        return _SUSPEND_FIRST if mark.when is When.WHILE_SUSPENDED else held(spec, path)
    return ""


def _differences(old: BaseModel, new: BaseModel, path: str) -> Iterator[tuple[str, Any]]:
    """Where two models of one type differ, and the new value there; ABSENT for nothing and for sections. The order of a list
    whose entries have keys, or that is a set, says nothing."""
    for name, field in type(old).model_fields.items():
        here, key = f"{path}.{field.alias or name}".lstrip("."), KEYED.get(name)
        before, after = without_places(getattr(old, name)), without_places(getattr(new, name))
        if computed_words(type(old), name) and name not in old.model_fields_set | new.model_fields_set:
            continue  # it follows from other fields, whose changes are judged themselves
        if isinstance(before, BaseModel) and isinstance(after, BaseModel):
            yield from _differences(before, after, here)
        elif key and before is not None and after is not None:
            yield from _of_entries(before, after, here, key)
        elif before != after and (key != "" or set(before) != set(after)):
            is_value = after is not None and not isinstance(after, BaseModel | list | dict)
            yield here, plain_number(after) if is_value else ABSENT


def _of_entries(old: Sequence[Any], new: Sequence[Any], path: str, key: str) -> Iterator[tuple[str, Any]]:
    before, after = ({getattr(item, key): item for item in items} for items in (old, new))
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            yield f"{path}.{name}", getattr(after.get(name), "value", ABSENT)


def _parameter_set(spec: RLJobSpec) -> type[BaseModel]:
    """The parameter set of the job's algorithm; of a Custom one the base of its own."""
    declared = BUILT_IN.get(spec.algorithm.type)
    if declared is not None:
        return declared.parameters
    return UnrollParameterSet if spec.replay is None else TransitionParameterSet


# --------------------------------------------------------------------------------------------------------------- in CEL


def _unchanged(place: MarkedField) -> str:
    """CEL that holds where the place is as it was: written in both and the same, or written in neither. The algorithm's type
    follows from what stands beside it where it is not written: another block would else be another algorithm unseen."""
    if place.path == "algorithm.type":
        return f"{TYPE} == {TYPE.replace('self.', 'oldSelf.')}"
    written, before = (_written(side, place) for side in ("self", "oldSelf"))
    same = f"self.{place.path} == oldSelf.{place.path}"
    return f"({written} ? {before} && {same} : !({before}))" if written else same


def _written(side: str, place: MarkedField) -> str:
    names = [side, *(step.alias for step in place.steps)]
    paths = (".".join(names[:depth]) for depth in range(2, len(names) + 1))
    return " && ".join(f"has({path})" for path in paths if path.partition(".")[2] not in STORED)


@dataclass(frozen=True, slots=True)
class TransitionRule:
    """One rule about a change of a job's spec in CEL, of ``oldSelf`` and ``self``."""

    field: str
    cel: str
    """True where what is written there is as it was."""
    message: str
    while_suspended: bool
    """Whether the field may change while the job is suspended; else never."""


def _of_place(place: MarkedField) -> TransitionRule:
    suspended = place.mutability.when is When.WHILE_SUSPENDED
    message = _SUSPEND_FIRST if suspended else _new_job(place.mutability)
    return TransitionRule(place.path, _unchanged(place), message, suspended)


_STEPS = "algorithm.learningRateDecaySteps"
TRANSITIONS: tuple[TransitionRule, ...] = (
    *(_of_place(place) for place in _PLACES if place.mutability.when is When.NEVER),
    *(_of_place(place) for place in _PLACES if place.mutability.when is When.WHILE_SUSPENDED),
    *(
        TransitionRule(
            place.path, f"(!has(self.{_STEPS}) || self.{_STEPS} == 0 || ({_unchanged(place)}))", DECAYS, True
        )
        for place in RATES.values()
        if len(place.steps) == 2  # Python alone tells it of a block's
    ),
)
"""Fields that never change come first: for them the advice to suspend the job would be of no use."""


# ------------------------------------------------------------------------------------------------------ what roles read


class _Same:
    """A spec as a key: specs are frozen, so the same object has the same digest."""

    __slots__ = ("spec",)

    def __init__(self, spec: RLJobSpec) -> None:
        self.spec = spec

    def __hash__(self) -> int:
        return id(self.spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.spec is other.spec


def read_at_start(spec: RLJobSpec) -> str:
    """Of the values of the fields that may change only while the job is suspended."""
    return _read_at_start(_Same(spec))


@lru_cache(maxsize=1024)  # it takes a third of a decision, and a spec hardly ever changes
def _read_at_start(same: _Same) -> str:
    spec = json.loads(same.spec.model_dump_json(by_alias=True))
    read = (place.path for place in _PLACES if place.mutability.when is When.WHILE_SUSPENDED)
    values = [_unordered(value_at(spec, path)) for path in read]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def _unordered(value: Any) -> Any:
    """A value without the order of its lists, which says nothing in most of them."""
    if isinstance(value, dict):
        return {key: _unordered(item) for key, item in value.items()}
    return sorted(map(_unordered, value), key=partial(json.dumps, sort_keys=True)) if isinstance(value, list) else value

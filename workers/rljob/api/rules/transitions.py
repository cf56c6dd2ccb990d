"""Rules of a change: what may never change, and what may only change while the job is suspended; made from the marks on the
fields (`rljob.api.mutability`)."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

from rljob.algorithms.built_in import BUILT_IN
from rljob.api.algorithm import SHARED, never_changing
from rljob.api.effective import computed_words
from rljob.api.job import RLJobSpec
from rljob.api.live import CENTRAL, DECAYS, LADDER, RATES, acts_centrally, decays
from rljob.api.mutability import MarkedField, Mutability, When, places
from rljob.api.parameters import TransitionParameterSet, UnrollParameterSet
from rljob.api.problems import ABSENT
from rljob.api.rule import KEYED, STORED, Difference, TransitionRule
from rljob.api.rules.algorithm import TYPE
from rljob.api.types import plain_number
from rljob.sources import without_places

_SUSPEND_FIRST = (
    "may change only while the job is suspended; set spec.suspend: true, with it or before, and resume afterwards"
)


def _new_job(mutability: Mutability) -> str:
    said = "it cannot be changed; make a new job"
    return f"{said}: {mutability.why}" if mutability.why else said


# ------------------------------------------------------------------------------------------------------------ in Python


def _differences(old: BaseModel, new: BaseModel, path: str) -> Iterator[Difference]:
    """Where two models of one type differ."""
    for name, field in type(old).model_fields.items():
        yield from _of_field(old, new, name, f"{path}.{field.alias or name}")


def _of_field(old: BaseModel, new: BaseModel, name: str, path: str) -> Iterator[Difference]:
    """The same of one field; the order of a list whose entries have keys, or that is a set, says nothing."""
    before, after = without_places(getattr(old, name)), without_places(getattr(new, name))
    key = KEYED.get((type(old), name))
    if computed_words(type(old), name) and name not in old.model_fields_set | new.model_fields_set:
        return  # it follows from other fields, whose changes are judged themselves
    if isinstance(before, BaseModel) and isinstance(after, BaseModel):
        yield from _differences(before, after, path)
    elif key and before is not None and after is not None:
        yield from _of_entries(before, after, path, key)
    elif before != after and (key != "" or set(before) != set(after)):
        yield Difference(path, _shown(after))


def _of_entries(old: Sequence[Any], new: Sequence[Any], path: str, key: str) -> Iterator[Difference]:
    before, after = ({getattr(item, key): item for item in items} for items in (old, new))
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            yield Difference(f"{path}.{name}", getattr(after.get(name), "value", ABSENT))


def _shown(value: Any) -> Any:
    if value is None or isinstance(value, BaseModel | list | dict):
        return ABSENT
    return plain_number(value)


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


# ------------------------------------------------------------------------------------------------------------ the rules


def _of_place(place: MarkedField) -> TransitionRule:
    """The rule about one place of the types that not every change may touch."""
    suspended = place.mutability.when is When.WHILE_SUSPENDED

    def broken(old: RLJobSpec, new: RLJobSpec) -> list[Difference]:
        before, after = place.parent_in(old), place.parent_in(new)
        if before is None or after is None or (suspended and (old.suspend or new.suspend)):
            return []
        return list(_of_field(before, after, place.name, place.path))

    message = _SUSPEND_FIRST if suspended else _new_job(place.mutability)
    return TransitionRule(place.path, _unchanged(place), message, broken, suspended)


def _never_with_some(alias: str, name: str) -> Iterator[TransitionRule]:
    """Rules about a shared parameter that never changes with some algorithms only: of those Python alone can tell."""
    sets = [each.parameters for each in BUILT_IN.values()]
    marks = dict.fromkeys(never_changing(kind, name) for kind in sets if name in kind.model_fields)
    for mark in marks if None in marks else ():
        if mark is None:
            continue

        def broken(old: RLJobSpec, new: RLJobSpec, mark: Mutability = mark) -> list[Difference]:
            its = _parameter_set(new)
            return (
                list(_of_field(old.algorithm, new.algorithm, name, f"algorithm.{alias}"))
                if never_changing(its, name) == mark
                else []
            )

        yield TransitionRule(f"algorithm.{alias}", "", _new_job(mark), broken, False)


def _parameter_set(spec: RLJobSpec) -> type[BaseModel]:
    """The parameter set of the job's algorithm; of a Custom one the base of its own."""
    declared = BUILT_IN.get(spec.algorithm.type)
    if declared is not None:
        return declared.parameters
    return UnrollParameterSet if spec.replay is None else TransitionParameterSet


def _held(place: MarkedField, holds: Callable[[RLJobSpec], bool], why: str, unless: str) -> TransitionRule:
    """The rule that a live field stays as it is while a job runs of which ``holds`` is true; ``unless``: CEL in which that is not
    so. Python alone tells it of a block's."""

    def broken(old: RLJobSpec, new: RLJobSpec) -> list[Difference]:
        before, after = place.parent_in(old), place.parent_in(new)
        free = old.suspend or new.suspend or not holds(new)
        return [] if before is None or after is None or free else list(_of_field(before, after, place.name, place.path))

    cel = f"({unless} || ({_unchanged(place)}))"
    return TransitionRule(place.path, cel if len(place.steps) == 2 else "", why, broken, True)


_STEPS = "algorithm.learningRateDecaySteps"
_PLACES = tuple(place for place in places(RLJobSpec) if not place.mutability.when.at_any_time)
TRANSITIONS: tuple[TransitionRule, ...] = (
    *(_of_place(place) for place in _PLACES if place.mutability.when is When.NEVER),
    *(rule for alias, name in SHARED.items() for rule in _never_with_some(alias, name)),
    *(_of_place(place) for place in _PLACES if place.mutability.when is When.WHILE_SUSPENDED),
    *(_held(place, decays, DECAYS, f"!has(self.{_STEPS}) || self.{_STEPS} == 0") for place in RATES),
    *(_held(place, acts_centrally, CENTRAL, "") for place in LADDER),
)
"""Fields that never change come first: for them the advice to suspend the job would be of no use."""


_READ = tuple(place for place in places(RLJobSpec) if place.mutability.when is When.WHILE_SUSPENDED)


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
    spec, values = same.spec, []
    for place in _READ:
        parent = place.parent_in(spec)
        values.append(None if parent is None else _field(parent, place.name))
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def _field(owner: BaseModel, name: str) -> Any:
    """A field as plain values; the order of a list with keys, or of a set, is left out."""
    value, key = getattr(owner, name), KEYED.get((type(owner), name))
    if key and value is not None:
        return {getattr(item, key): _plain(item) for item in value}
    return sorted(value) if key == "" else _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return {**(value.model_extra or {}), **{name: _field(value, name) for name in type(value).model_fields}}
    return [_plain(item) for item in value] if isinstance(value, list) else value

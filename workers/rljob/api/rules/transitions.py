"""Rules of a change: what may never change, and what may only change while the job is suspended; made from the marks on the
fields (`rljob.api.mutability`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel

from rljob.api.algorithm import PARAMETERS
from rljob.api.cel import Named, manifest_name
from rljob.api.job import RLJobSpec
from rljob.api.keyed import KEYED
from rljob.api.mutability import Mutability, Place, When, mark_of, places
from rljob.api.problems import ABSENT
from rljob.api.rule import Difference, TransitionRule
from rljob.api.types import decimal_text

_SUSPEND_FIRST = (
    "allowed to change only while the job is suspended; set spec.suspend: true, before it or with it, and resume "
    "afterwards"
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
    before, after, key = getattr(old, name), getattr(new, name), KEYED.get((type(old), name))
    if isinstance(before, BaseModel) and isinstance(after, BaseModel):
        yield from _differences(before, after, path)
    elif key:
        yield from _of_entries(before, after, path, key)
    elif before != after and (key is None or set(before) != set(after)):
        yield Difference(path, _shown(after))


def _of_entries(old: Sequence[Any], new: Sequence[Any], path: str, key: str) -> Iterator[Difference]:
    before, after = ({getattr(item, key): item for item in items} for items in (old, new))
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            yield Difference(f"{path}.{name}", getattr(after.get(name), "value", ABSENT))


def _shown(value: Any) -> Any:
    if value is None or isinstance(value, BaseModel | list | dict):
        return ABSENT
    return decimal_text(value) if isinstance(value, float) else value


def _parent(spec: RLJobSpec, place: Place) -> BaseModel | None:
    """The section that a place is in; None where an optional one is not there."""
    node: Any = spec
    for step in place.steps[:-1]:
        node = None if node is None else getattr(node, step.name)
    return node  # type: ignore[no-any-return]


# --------------------------------------------------------------------------------------------------------------- in CEL


def _unchanged(place: Place) -> str:
    """CEL that holds where the place is as it was. A section that only one of the two has is another rule's matter."""
    missing, same, path = [], "", ""
    for step in place.steps:
        path += f".{step.alias}"
        both = f"has(self{path}) == has(oldSelf{path}) && " if step.optional else ""
        if step is not place.steps[-1]:
            missing += [f"!has({side}{path})" for side in ("self", "oldSelf") if step.optional]
        elif both:
            same = f"{both}(!has(self{path}) || self{path} == oldSelf{path})"
        else:
            same = f"self{path} == oldSelf{path}"
    return " || ".join([*missing, same])


# ------------------------------------------------------------------------------------------------------------ the rules


def _of_place(place: Place) -> TransitionRule:
    """The rule about one place of the types that not every change may touch."""
    suspended = place.mutability.when is When.WHILE_SUSPENDED

    def broken(old: RLJobSpec, new: RLJobSpec) -> list[Difference]:
        before, after = _parent(old, place), _parent(new, place)
        if before is None or after is None or (suspended and (old.suspend or new.suspend)):
            return []
        return list(_of_field(before, after, place.steps[-1].name, place.path))

    same = _unchanged(place)
    return TransitionRule(
        place.path,
        f"oldSelf.suspend || self.suspend || {same}" if suspended else same,
        _SUSPEND_FIRST if suspended else _new_job(place.mutability),
        broken,
    )


def _of_parameters() -> Iterator[TransitionRule]:
    """The rules about single parameters of an algorithm that not even a suspended job may change; presets and defaults count."""
    for algorithm, (model, presets) in PARAMETERS.items():
        old, new = (Named(model, presets, f"{side}.algorithm.parameters") for side in ("oldSelf", "self"))
        for python_name, field in model.model_fields.items():
            mark = mark_of(field)
            if mark is None:
                continue
            path = f"algorithm.parameters.{manifest_name(model, python_name)}"
            yield TransitionRule(
                path,
                f"self.algorithm.name != '{algorithm}' || oldSelf.algorithm.name != '{algorithm}' || "
                f"{new.number_of(python_name)} == {old.number_of(python_name)}",
                _new_job(mark),
                _parameter_broken(algorithm, python_name, path),
            )


def _parameter_broken(algorithm: str, python_name: str, path: str) -> Any:
    def broken(old: RLJobSpec, new: RLJobSpec) -> list[Difference]:
        if not old.algorithm.name == new.algorithm.name == algorithm:
            return []
        before, after = (getattr(spec.algorithm.checked()[0], python_name) for spec in (old, new))
        return [] if before == after else [Difference(path, _shown(after))]

    return broken


_PLACES = tuple(place for place in places(RLJobSpec) if place.mutability.when is not When.ANY_TIME)
TRANSITIONS: tuple[TransitionRule, ...] = (
    *(_of_place(place) for place in _PLACES if place.mutability.when is When.NEVER),
    *_of_parameters(),
    *(_of_place(place) for place in _PLACES if place.mutability.when is When.WHILE_SUSPENDED),
)
"""What never changes comes first: who is told that need not be told to suspend the job for it."""

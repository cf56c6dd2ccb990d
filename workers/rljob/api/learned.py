"""Which settings of a job change what it learns, by the marks on its fields (`rljob.api.mutability`)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rljob.api import mutability
from rljob.api.job import RLJobSpec
from rljob.api.paths import TypedPlace
from rljob.api.presets.values import leaves


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

"""A digest of what roles read when they start: it tells whether those that run have read what the spec says now."""

import hashlib
import json
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

from rljob.api.job import RLJobSpec
from rljob.api.mutability import When, places
from rljob.api.rule import KEYED

_PLACES = tuple(place for place in places(RLJobSpec) if place.mutability.when is When.WHILE_SUSPENDED)


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
    for place in _PLACES:
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

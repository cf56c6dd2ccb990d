"""What a field of a model is, seen from outside: its type without Optional, its marker, its words, its default."""

from __future__ import annotations

import types
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from rljob.api.types import Integer, JSONObjectText, QuantityText, Real, Text, decimal_text

Marker = Integer | Real | Text | QuantityText | JSONObjectText
_MARKERS = (Integer, Real, Text, QuantityText, JSONObjectText)
OWN_DEFAULT = {
    ("AutoscalingSpec", "signal"): "the algorithm's",
    ("ScalingGuards", "max_policy_lag_updates"): "400 for ApeXDQN, four fifths of queue.maxPolicyLagUpdates for IMPALA",
}
"""Fields whose default depends on the algorithm (`rljob.api.defaults`), in words; a schema cannot state it."""


def without_optional(annotation: Any) -> tuple[Any, bool]:
    """The annotation without None, and whether None was in it."""
    if get_origin(annotation) in (Union, types.UnionType):
        rest = [part for part in get_args(annotation) if part is not type(None)]
        assert len(rest) == 1, annotation
        return rest[0], True
    return annotation, False


def unwrapped(annotation: Any, metadata: list[Any]) -> tuple[Any, list[Any]]:
    """The bare type and every piece of metadata, from Annotated and Optional around it."""
    annotation, _ = without_optional(annotation)
    while hasattr(annotation, "__metadata__"):
        metadata = [*metadata, *annotation.__metadata__]
        annotation, _ = without_optional(annotation.__origin__)
    return annotation, metadata


def marker_of(field: FieldInfo) -> Marker | None:
    """The marker of a field's values, such as `Integer`."""
    _, metadata = unwrapped(field.annotation, list(field.metadata))
    return next((item for item in metadata if isinstance(item, _MARKERS)), None)


def literal_values(field: FieldInfo) -> list[str]:
    """The words that a field allows; empty if it is no choice of words."""
    annotation, _ = unwrapped(field.annotation, [])
    return list(get_args(annotation)) if get_origin(annotation) is Literal else []


def default_of(model: type[BaseModel], name: str) -> Any:
    """The default as JSON; `PydanticUndefined` where there is none, or where it depends on something else."""
    field = model.model_fields[name]
    if (model.__name__, name) in OWN_DEFAULT:
        return PydanticUndefined
    value = field.default if field.default_factory is None else field.default_factory()  # type: ignore[call-arg]
    if value is PydanticUndefined or value is None:
        return PydanticUndefined
    return _plain(value)


def _plain(value: Any) -> Any:
    """A default as JSON, without what a schema cannot state."""
    if isinstance(value, BaseModel):
        owner = type(value)
        kept = {
            field.alias or name: getattr(value, name)
            for name, field in owner.model_fields.items()
            if (owner.__name__, name) not in OWN_DEFAULT
        }
        return {alias: _plain(item) for alias, item in kept.items() if item is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return decimal_text(value) if isinstance(value, float) else value

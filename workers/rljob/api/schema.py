"""From the types of `rljob.api` to a structural OpenAPI v3 schema for Kubernetes: everything inline, typed, described and
bounded."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from rljob.api.algorithm import AlgorithmSpec
from rljob.api.cel import Validation, parameter_validations, real_bounds, rule_validations, transition_validation
from rljob.api.environment import EnvironmentSource
from rljob.api.fields import default_of, unwrapped
from rljob.api.job import RLJobSpec
from rljob.api.keyed import KEYED
from rljob.api.rules import RULES
from rljob.api.rules.transitions import TRANSITIONS
from rljob.api.timestamps import TimestampText
from rljob.api.types import (
    DECIMAL_LENGTH,
    DECIMAL_PATTERN,
    QUANTITY_PATTERN,
    DecimalText,
    Integer,
    JSONObjectText,
    QuantityText,
    Text,
)

Schema = dict[str, Any]


def schema_of(model: type[BaseModel], *, defaults: bool = True) -> Schema:
    """The schema of a model. ``defaults=False`` for a status, which is written whole and must not be filled in."""
    properties: Schema = {}
    required: list[str] = []
    for name, field in model.model_fields.items():
        alias = field.alias or name
        schema = _value(field.annotation, list(field.metadata), defaults)
        key = KEYED.get((model, name))
        if key is not None:
            schema["x-kubernetes-list-type"] = "map" if key else "set"
            if key:
                schema["x-kubernetes-list-map-keys"] = [key]
        default = default_of(model, name)
        if field.is_required():
            required.append(alias)
        elif defaults and default is not PydanticUndefined:
            schema["default"] = _default(schema, default)
        properties[alias] = {"description": flowed(field.description), **schema}
    schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    validations = _validations(model)
    if validations:
        schema["x-kubernetes-validations"] = validations
    return schema


def flowed(words: str | None) -> str:
    """A docstring as one line."""
    return " ".join((words or "").replace("``", "").split())


def _validations(model: type[BaseModel]) -> list[Validation]:
    found = [rule_validations(rule) for rule in RULES if rule.at is model]
    if model is AlgorithmSpec or model is EnvironmentSource:
        found += parameter_validations(model)
    if model is RLJobSpec:
        found += [transition_validation(rule) for rule in TRANSITIONS]
    return found


def _default(schema: Schema, value: Any) -> Any:
    """The default of an object leaves out what its fields' own defaults say already, except where rules look at it: an API
    server checks those on a default as it stands, before anything below is filled in."""
    if not isinstance(value, dict) or "properties" not in schema or _has_rules(schema):
        return value
    fields = schema["properties"]
    return {
        name: item for name, item in value.items() if "default" not in fields[name] or _filled(fields[name]) != item
    }


def _has_rules(schema: Schema) -> bool:
    fields = schema.get("properties", {}).values()
    return "x-kubernetes-validations" in schema or any(_has_rules(field) for field in fields)


def _filled(schema: Schema) -> Any:
    """What a field holds once its default and the defaults below it are filled in."""
    value = schema.get("default")
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    filled = {name: _filled(field) for name, field in schema["properties"].items() if "default" in field}
    return {**filled, **value}


def _value(annotation: Any, metadata: list[Any], defaults: bool) -> Schema:
    annotation, metadata = unwrapped(annotation, metadata)
    for marker in metadata:
        if isinstance(marker, Integer):
            return {"type": "integer", "format": "int64", "minimum": marker.low, "maximum": marker.high}
        if isinstance(marker, DecimalText):
            return _decimal(marker)
        if isinstance(marker, Text):
            return _text(marker)
        if isinstance(marker, QuantityText):
            return {"x-kubernetes-int-or-string": True, "minimum": 0, "pattern": QUANTITY_PATTERN, "maxLength": 32}
        if isinstance(marker, JSONObjectText):
            return {"type": "string", "maxLength": 4096}
        if isinstance(marker, TimestampText):
            return {"type": "string", "format": "date-time", "maxLength": 40}
    return _by_type(annotation, metadata, defaults)


def _by_type(annotation: Any, metadata: list[Any], defaults: bool) -> Schema:
    origin = get_origin(annotation)
    if origin is Literal:
        return {"type": "string", "enum": list(get_args(annotation))}
    if annotation is bool:
        return {"type": "boolean"}
    if annotation is int:
        return {"type": "integer", "format": "int64", **_limits(metadata)}
    if origin is list:
        (item,) = get_args(annotation)
        schema: Schema = {
            "type": "array",
            "items": _value(item, [], defaults),
            "maxItems": _bound(metadata, "max_length"),
        }
        least = _bound(metadata, "min_length")
        return {**schema, "minItems": least} if least else schema
    if origin is dict:
        return _mapping(get_args(annotation), metadata, defaults)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return schema_of(annotation, defaults=defaults)
    raise TypeError(f"no schema for {annotation!r}")


def _mapping(arguments: tuple[Any, ...], metadata: list[Any], defaults: bool) -> Schema:
    key, value = arguments
    if value is Any:
        return {
            "type": "object",
            "maxProperties": _bound(metadata, "max_length"),
            "x-kubernetes-preserve-unknown-fields": True,
        }
    schema = {
        "type": "object",
        "additionalProperties": _value(value, [], defaults),
        "maxProperties": _bound(metadata, "max_length"),
    }
    keys = next(item for item in unwrapped(key, [])[1] if isinstance(item, Text))
    least = f"key.size() >= {keys.shortest} && " if keys.shortest else ""
    schema["x-kubernetes-validations"] = [
        {
            "rule": f"self.all(key, {least}key.size() <= {keys.longest})",
            "message": f"keys: {keys.allowed}",
            "reason": "FieldValueInvalid",
        }
    ]
    return schema


def _decimal(marker: DecimalText) -> Schema:
    schema: Schema = {"type": "string", "maxLength": DECIMAL_LENGTH, "pattern": DECIMAL_PATTERN}
    bounds = real_bounds(marker, "double(self)")
    if bounds:
        readable = f"!self.matches('{DECIMAL_PATTERN}') || "  # the pattern speaks for itself
        cel = f"{readable}({' && '.join(bounds)})"
        schema["x-kubernetes-validations"] = [
            {"rule": cel, "message": marker.allowed, "reason": "FieldValueInvalid"},
        ]
    return schema


def _text(marker: Text) -> Schema:
    schema: Schema = {"type": "string", "maxLength": marker.longest}
    if marker.shortest:
        schema["minLength"] = marker.shortest
    if marker.pattern is not None:
        schema["pattern"] = marker.pattern
    return schema


def _limits(metadata: list[Any]) -> Schema:
    limits = {"minimum": _bound(metadata, "ge"), "maximum": _bound(metadata, "le")}
    return {name: value for name, value in limits.items() if value is not None}


def _bound(metadata: list[Any], name: str) -> Any:
    return next((value for item in metadata if (value := getattr(item, name, None)) is not None), None)

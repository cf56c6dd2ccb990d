"""From the types of `rljob.api` to a structural OpenAPI v3 schema for Kubernetes: everything inline, typed, described and
bounded."""

from __future__ import annotations

import copy
import json
import math
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticUndefined

from rljob.api.computed import COMPUTED
from rljob.api.fields import default_of, description_of, marker_of, unwrapped
from rljob.api.generate.cel import Validation, rule_validations, transition_validations
from rljob.api.job import RLJobSpec
from rljob.api.keyed import KEYED
from rljob.api.presets.values import is_set, values_at
from rljob.api.rule import STORED
from rljob.api.rules import RULES
from rljob.api.rules.transitions import TRANSITIONS
from rljob.api.timestamps import TimestampText
from rljob.api.types import (
    DECIMAL_LENGTH,
    DECIMAL_PATTERN,
    MAX_INTEGER,
    MAX_PLAIN_QUANTITY,
    QUANTITY_PATTERN,
    DecimalText,
    Integer,
    JSONObject,
    ListOrWord,
    Opaque,
    QuantityText,
    Real,
    Text,
    WordOrFactory,
    plain_number,
)

Schema = dict[str, Any]
_AMOUNT: Schema = {
    "x-kubernetes-preserve-unknown-fields": True,
    "minimum": 0,
    "maximum": MAX_PLAIN_QUANTITY,
    "pattern": QUANTITY_PATTERN,
    "maxLength": 32,
    "maxProperties": 0,
    "maxItems": 0,
    "not": {"enum": [True, False, {}, []]},
}
"""A quantity that may be a number with a fraction. No type says so, and what is neither number nor text is shut out one by one:
maps and lists that hold something by the two maxima, all else by ``not``."""


def schema_of(model: type[BaseModel], path: str = "status") -> Schema:
    """The schema of a model that describes what lies at ``path``."""
    properties: Schema = {}
    required: list[str] = []
    for name, field in model.model_fields.items():
        alias = field.alias or name
        here = f"{path}.{alias}"
        schema = _value(field.annotation, list(field.metadata), here)
        key = KEYED.get((model, name))
        if key is not None:
            schema["x-kubernetes-list-type"] = "map" if key else "set"
            if key:
                schema["x-kubernetes-list-map-keys"] = [to_camel(key)]
        if field.is_required() and not is_set(here):
            required.append(alias)
        stored = here.removeprefix("spec.")
        if stored in STORED and stored != here:
            schema["default"] = copy.deepcopy(STORED[stored])
        properties[alias] = {"description": _description(model, name, here, schema), **schema}
    schema = {"type": "object", **({"properties": properties} if properties else {"maxProperties": 0})}
    if model.model_config.get("extra") == "allow":
        schema["x-kubernetes-preserve-unknown-fields"] = True
    if required:
        schema["required"] = required
    validations = _validations(model)
    if validations:
        schema["x-kubernetes-validations"] = validations
    return schema


def _description(model: type[BaseModel], name: str, path: str, schema: Schema) -> str:
    """What a field means, its bounds, which ``kubectl explain`` leaves out, its default, and which presets set it to what."""
    words = flowed(description_of(model, name))
    if not path.startswith("spec.") or "properties" in schema:
        return words
    parts = (words, bounds_words(model, name), default_words(model, name), preset_words(model, name, path))
    return " ".join(part for part in parts if part)


def bounds_words(model: type[BaseModel], name: str) -> str:
    """The range of a number in a few words, ``0 to 1.``; empty where it has none."""
    marker = marker_of(model.model_fields[name])
    if not isinstance(marker, Integer | Real):
        return ""
    bounds = marker.allowed.partition("integer " if isinstance(marker, Integer) else "number ")[2].removeprefix("from ")
    return f"{bounds[0].upper()}{bounds[1:]}." if bounds else ""


def default_words(model: type[BaseModel], name: str) -> str:
    """The default of a field as a sentence; empty where it has none, or nothing worth saying."""
    if (model, name) in COMPUTED:
        return f"Default: {COMPUTED[model, name].words}."
    value = default_of(model, name)
    return "" if value is PydanticUndefined or value in ("", [], {}) else f"Default: {json.dumps(value)}."


def preset_words(model: type[BaseModel], name: str, path: str) -> str:
    """Which presets set a field to what else than its default, as a sentence; empty where none does."""
    by_value: dict[str, list[str]] = {}
    for preset, value in values_at(path).items():
        if (model, name) in COMPUTED or value != default_of(model, name):
            by_value.setdefault(json.dumps(plain_number(value)), []).append(preset)
    said = "; ".join(f"{value} in {', '.join(presets)}" for value, presets in by_value.items())
    return f"Presets: {said}." if said else ""


def flowed(words: str | None) -> str:
    """A docstring as one line."""
    return " ".join((words or "").replace("``", "").split())


def _validations(model: type[BaseModel]) -> list[Validation]:
    found: list[Validation] = []
    for rule in RULES:  # of several algorithms some are the same
        if rule.at is model and rule.cel and (validation := rule_validations(rule)) not in found:
            found.append(validation)
    if model is RLJobSpec:
        found += transition_validations(TRANSITIONS)
    return found


def _value(annotation: Any, metadata: list[Any], path: str) -> Schema:
    annotation, metadata = unwrapped(annotation, metadata)
    for marker in metadata:
        if isinstance(marker, Integer):
            counted = path.startswith("status") and marker.high == MAX_INTEGER  # a status is not written by hand
            bounds = {"minimum": marker.low} if counted else {"minimum": marker.low, "maximum": marker.high}
            return {"type": "integer", **bounds}
        if isinstance(marker, DecimalText):
            return _decimal(marker)
        if isinstance(marker, Text):
            return _text(marker)
        if isinstance(marker, QuantityText):
            whole = {"x-kubernetes-int-or-string": True, "minimum": 0, "pattern": QUANTITY_PATTERN, "maxLength": 32}
            return copy.deepcopy(_AMOUNT) if marker.fractions else whole
        if isinstance(marker, Real):
            return _number(marker)
        if isinstance(marker, WordOrFactory):
            return {"type": "string", "maxLength": 253, "pattern": marker.pattern}
        if isinstance(marker, ListOrWord):
            return _list_or_word(marker)
        if isinstance(marker, Opaque):
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        if isinstance(marker, JSONObject):
            return {"type": "object", "maxProperties": marker.most, "x-kubernetes-preserve-unknown-fields": True}
        if isinstance(marker, TimestampText):
            return {"type": "string", "format": "date-time", "maxLength": 40}
    return _by_type(annotation, metadata, path)


def _by_type(annotation: Any, metadata: list[Any], path: str) -> Schema:
    origin = get_origin(annotation)
    if origin is Literal:
        return {"type": "string", "enum": list(get_args(annotation))}
    if annotation is bool:
        return {"type": "boolean"}
    if annotation is int:
        return {"type": "integer", **_limits(metadata)}
    if annotation is Any:
        return {"x-kubernetes-preserve-unknown-fields": True}
    if origin is list:
        (item,) = get_args(annotation)
        schema: Schema = {
            "type": "array",
            "items": _value(item, [], f"{path}[]"),
            "maxItems": _bound(metadata, "max_length"),
        }
        least = _bound(metadata, "min_length")
        return {**schema, "minItems": least} if least else schema
    if origin is dict:
        return _mapping(get_args(annotation), metadata, path)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return schema_of(annotation, path)
    raise TypeError(f"no schema for {annotation!r}")


def _mapping(arguments: tuple[Any, ...], metadata: list[Any], path: str) -> Schema:
    key, value = arguments
    if value is Any:
        return {
            "type": "object",
            "maxProperties": _bound(metadata, "max_length"),
            "x-kubernetes-preserve-unknown-fields": True,
        }
    schema = {
        "type": "object",
        "additionalProperties": _value(value, [], path),
        "maxProperties": _bound(metadata, "max_length"),
    }
    keys = next(item for item in unwrapped(key, [])[1] if isinstance(item, Text))
    least = f"key.size() >= {keys.shortest} && " if keys.shortest else ""
    if "x-kubernetes-preserve-unknown-fields" not in schema["additionalProperties"]:  # else CEL sees nothing of the map
        schema["x-kubernetes-validations"] = [
            {
                "rule": f"self.all(key, {least}key.size() <= {keys.longest})",
                "message": f"keys: {keys.allowed}",
            }
        ]
    return schema


def _number(marker: Real) -> Schema:
    schema: Schema = {"type": "number"}
    if marker.low > -math.inf:
        schema |= {"minimum": marker.low} | ({"exclusiveMinimum": True} if marker.above else {})
    if marker.high < math.inf:
        schema |= {"maximum": marker.high} | ({"exclusiveMaximum": True} if marker.below else {})
    return schema


def _bounds(marker: Real, value: str) -> list[str]:
    """CEL for the bounds of a number."""
    found = []
    if marker.low > -math.inf:
        found.append(f"{value} {'>' if marker.above else '>='} {float(marker.low)!r}")
    if marker.high < math.inf:
        found.append(f"{value} {'<' if marker.below else '<='} {float(marker.high)!r}")
    return found


def _decimal(marker: DecimalText) -> Schema:
    schema: Schema = {"type": "string", "maxLength": DECIMAL_LENGTH, "pattern": DECIMAL_PATTERN}
    bounds = _bounds(marker, "double(self)")
    if bounds:
        readable = f"!self.matches('{DECIMAL_PATTERN}') || "  # the pattern speaks for itself
        cel = f"{readable}({' && '.join(bounds)})"
        schema["x-kubernetes-validations"] = [
            {"rule": cel, "message": marker.allowed},
        ]
    return schema


def _list_or_word(marker: ListOrWord) -> Schema:
    """No type says so: a text is one of the words, numbers are shut out by two bounds that no number keeps, all else as above."""
    return {
        "x-kubernetes-preserve-unknown-fields": True,
        "pattern": f"^({'|'.join(marker.words)})$",
        "maxItems": marker.most,
        "minimum": 1,
        "maximum": 0,
        "maxProperties": 0,
        "not": {"enum": [True, False, {}]},
    }


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

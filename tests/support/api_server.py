"""What a Kubernetes API server does with an RLJob, from the generated CRD alone: prune nulls, fill in defaults, refuse unknown
fields (``kubectl`` asks for that), check the structural schema and the keys of lists, evaluate CEL on values of its types."""

import copy
import json
import math
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import cel
import jsonschema
from rljob.api.generate.crd import definition

Schema = dict[str, Any]
VERSION = definition()["spec"]["versions"][0]
ROOT: Schema = VERSION["schema"]["openAPIV3Schema"]


def refusals(document: dict[str, Any], stored: dict[str, Any] | None = None) -> list[str]:
    """Why the server refuses ``document`` (as an update of ``stored``): ``place: message``. Empty where it accepts it."""
    given = admitted(document)
    problems = [*_heads(given), *unknown(given, ROOT, ""), *_structural(given), *_repeated(given, ROOT, "")]
    if problems:
        return problems
    return [
        f"{path}{validation.get('fieldPath', '')}: {message}"
        for path, validation, message in broken(given, admitted(stored) if stored is not None else None, ROOT, "")
    ]


def admitted(document: dict[str, Any]) -> dict[str, Any]:
    """The document as it would be stored: nulls gone, defaults filled in."""
    given = copy.deepcopy(document)
    fill(given, ROOT)
    return given


def sendable(document: dict[str, Any]) -> bool:
    """Whether JSON can hold the document, which has no infinities; kubectl refuses it by itself where it cannot."""
    try:
        json.dumps(document, allow_nan=False)
    except ValueError:
        return False
    return True


def _heads(document: dict[str, Any]) -> Iterator[str]:
    if document.get("apiVersion") != "rljob.dev/v1alpha1" or document.get("kind") != "RLJob":
        yield "apiVersion, kind: no matches for this kind"
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        yield "metadata.name: required"
    elif strange := set(metadata) - {
        "name",
        "namespace",
        "labels",
        "annotations",
    }:  # those of ObjectMeta that users write
        yield f"metadata: unknown field {', '.join(strange)}"


def fill(value: Any, schema: Schema) -> None:
    """Drop the nulls of known fields and of maps, and fill in defaults: `PruneNonNullableNullsWithoutDefaults` and `Default` of
    Kubernetes' ``apiextensions-apiserver``. Nulls under unknown names, in lists and below what has no schema stay."""
    if isinstance(value, dict):
        for name, field in schema.get("properties", {}).items():
            if name in value and value[name] is None:
                del value[name]
            if name not in value and "default" in field:
                value[name] = copy.deepcopy(field["default"])
            if name in value:
                fill(value[name], field)
        if "additionalProperties" in schema:
            for name in [name for name, item in value.items() if item is None]:
                del value[name]
    elif isinstance(value, list) and "items" in schema:
        for item in value:
            fill(item, schema["items"])


def unknown(value: Any, schema: Schema, path: str) -> Iterator[str]:
    """Fields that the schema does not have; where it preserves unknown ones, only those below the fields that it has."""
    if isinstance(value, dict) and "properties" in schema:
        for name, item in value.items():
            if name in schema["properties"]:
                yield from unknown(item, schema["properties"][name], f"{path}.{name}".lstrip("."))
            elif not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield f"{path}.{name}: unknown field"
    elif isinstance(value, dict) and isinstance(schema.get("additionalProperties"), dict):
        for name, item in value.items():
            yield from unknown(item, schema["additionalProperties"], f"{path}.{name}")
    elif isinstance(value, list) and "items" in schema:
        for i, item in enumerate(value):
            yield from unknown(item, schema["items"], f"{path}[{i}]")


def _int_or_string(validator: Any, wanted: bool, value: Any, schema: Schema) -> Iterator[jsonschema.ValidationError]:
    if isinstance(value, bool) or not isinstance(value, int | str):
        yield jsonschema.ValidationError(f"{value!r} must be of type int-or-string")


def _pattern(validator: Any, pattern: str, value: Any, schema: Schema) -> Iterator[jsonschema.ValidationError]:
    """RE2's ``$`` is the end of the text; Python's lets a line break follow."""
    if isinstance(value, str) and not re.search(re.sub(r"\$(?=\)|\||\Z)", r"\\Z", pattern), value):
        yield jsonschema.ValidationError(f"{value!r} should match {pattern!r}")


def _minimum(validator: Any, least: float, value: Any, schema: Schema) -> Iterator[jsonschema.ValidationError]:
    """OpenAPI 3.0 says with a boolean beside the bound whether the bound itself is allowed."""
    if validator.is_type(value, "number") and (value < least or (schema.get("exclusiveMinimum") and value == least)):
        yield jsonschema.ValidationError(f"{value!r} is below the minimum of {least!r}")


def _maximum(validator: Any, most: float, value: Any, schema: Schema) -> Iterator[jsonschema.ValidationError]:
    if validator.is_type(value, "number") and (value > most or (schema.get("exclusiveMaximum") and value == most)):
        yield jsonschema.ValidationError(f"{value!r} is above the maximum of {most!r}")


def _nothing(validator: Any, said: Any, value: Any, schema: Schema) -> Iterator[jsonschema.ValidationError]:
    """Said by another keyword already."""
    yield from ()


Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    {
        "x-kubernetes-int-or-string": _int_or_string,
        "pattern": _pattern,
        "minimum": _minimum,
        "maximum": _maximum,
        "exclusiveMinimum": _nothing,
        "exclusiveMaximum": _nothing,
    },
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
        "number",
        lambda _, value: isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value),
    ),
)
_VALIDATOR = Validator(ROOT)


def _structural(document: dict[str, Any]) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in _VALIDATOR.iter_errors(document)]


def structural(path: str, value: Any) -> list[str]:
    """What the schema at ``spec.<path>`` says of one value."""
    schema = ROOT["properties"]["spec"]
    for name in path.split("."):
        schema = schema["properties"][name]
    value = copy.deepcopy(value)
    fill(value, schema)
    return [error.message for error in Validator(schema).iter_errors(value)]


def _repeated(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, field in schema.get("properties", {}).items():
            if name in value:
                yield from _repeated(value[name], field, f"{path}.{name}")
    elif isinstance(value, list):
        kind = schema.get("x-kubernetes-list-type")
        keys = schema.get("x-kubernetes-list-map-keys", [])
        identities = [
            repr([item.get(key) for key in keys] if keys else item)
            for item in value
            if keys == [] or (item and isinstance(item, dict))
        ]
        if kind in ("map", "set") and len(set(identities)) < len(identities):
            yield f"{path}: Duplicate value"
        for i, item in enumerate(value):
            yield from _repeated(item, schema.get("items", {}), f"{path}[{i}]")


@cache
def _program(rule: str) -> Any:
    return cel.compile(rule)


def typed(value: Any, schema: Schema) -> Any:
    """The document as CEL sees it: a number of the schema is a double however it was written, an integer is none."""
    kind = schema.get("type")
    if kind == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        fields, further = schema.get("properties", {}), schema.get("additionalProperties") or {}
        return {name: typed(item, fields.get(name, further)) for name, item in value.items()}
    if isinstance(value, list):
        return [typed(item, schema.get("items", {})) for item in value]
    return value


def broken(
    value: Any, old: Any, schema: Schema, path: str, *, changes: bool = False
) -> Iterator[tuple[str, dict[str, str], str]]:
    """The validations that ``value`` breaks, as (place, validation, message); those about a change only where there is
    something to compare with. ``changes``: no others."""
    yield from _broken(typed(value, schema), None if old is None else typed(old, schema), schema, path, changes)


def _broken(
    value: Any, old: Any, schema: Schema, path: str, changes: bool
) -> Iterator[tuple[str, dict[str, str], str]]:
    rules = [
        each
        for each in schema.get("x-kubernetes-validations", [])
        if (old is not None if "oldSelf" in each["rule"] else not changes)
    ]
    if rules:  # what CEL copies of a value takes most of the time
        context = cel.Context(variables={"self": value} if old is None else {"self": value, "oldSelf": old})
    for validation in rules:
        rule = validation["rule"]
        try:
            holds, message = _program(rule).execute(context), validation["message"]
        except (RuntimeError, ValueError, TypeError, OverflowError) as error:
            holds, message = False, f"unable to evaluate {rule[:80]}: {error}"
        if holds is not True:
            yield path, validation, message
    if isinstance(value, dict):
        for name, field in schema.get("properties", {}).items():
            if name in value:
                before = old.get(name) if isinstance(old, dict) else None
                yield from _broken(value[name], before, field, f"{path}.{name}".lstrip("."), changes)
        further = schema.get("additionalProperties")
        if isinstance(further, dict):
            for name, item in value.items():
                yield from _broken(item, None, further, f"{path}[{name}]", changes)
    elif isinstance(value, list) and "items" in schema:
        for i, item in enumerate(value):  # entries of a list are not compared: no rule about a change stands below one
            yield from _broken(item, None, schema["items"], f"{path}[{i}]", changes)

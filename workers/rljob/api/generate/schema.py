"""From the types of `rljob.api` to a structural OpenAPI v3 schema for Kubernetes: everything inline, typed, described and
bounded."""

import copy
import json
from typing import Any, ClassVar, Final

from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import core_schema

from rljob.api.effective import default_words
from rljob.api.fields import description_of, marker_of
from rljob.api.generate.cel import Validation, rule_validations, transition_validations
from rljob.api.job import RLJobSpec
from rljob.api.keyed import KEYED
from rljob.api.presets.values import is_set
from rljob.api.rule import STORED
from rljob.api.rules import RULES
from rljob.api.rules.transitions import TRANSITIONS
from rljob.api.types import MAX_INTEGER, Integer, Real

Schema = dict[str, Any]
_ANYTHING: Final = "x-kubernetes-preserve-unknown-fields"
_NOTHING: Final = ("minLength", 0)


def schema_of(model: type[BaseModel], path: str = "status") -> Schema:
    """The schema of a model that describes what lies at ``path``."""
    properties: Schema = {}
    required: list[str] = []
    generated = model.model_json_schema(schema_generator=_Generator).get("properties", {})
    for name, field in model.model_fields.items():
        alias = field.alias or name
        here = f"{path}.{alias}"
        schema = _structural(generated[alias], here)
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
        schema[_ANYTHING] = True
    if required:
        schema["required"] = required
    validations = _validations(model)
    if validations:
        schema["x-kubernetes-validations"] = validations
    return schema


def _description(model: type[BaseModel], name: str, path: str, schema: Schema) -> str:
    """What a field means, its bounds, which ``kubectl explain`` leaves out, and its default."""
    words = flowed(description_of(model, name))
    if not path.startswith("spec.") or "properties" in schema:
        return words
    parts = (words, bounds_words(model, name), default_sentence(model, name))
    return " ".join(part for part in parts if part)


def bounds_words(model: type[BaseModel], name: str) -> str:
    """The range of a number in a few words, ``0 to 1.``; empty where it has none."""
    marker = marker_of(model.model_fields[name])
    if not isinstance(marker, Integer | Real):
        return ""
    bounds = marker.allowed.partition("integer " if isinstance(marker, Integer) else "number ")[2].removeprefix("from ")
    return f"{bounds[0].upper()}{bounds[1:]}." if bounds else ""


def default_sentence(model: type[BaseModel], name: str) -> str:
    """The default of a field as a sentence; empty where it has none, or nothing worth saying."""
    words = default_words(model, name, json.dumps)
    return "" if words in ("unset", '""', "[]", "{}") else f"Default: {words}."


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


class _Generator(GenerateJsonSchema):
    """Pydantic's own, which notes the models that it refers to."""

    models: ClassVar[dict[str, type[BaseModel]]] = {}
    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"non-serializable-default", "skipped-choice"}  # noqa: RUF012 - its base's

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        self.models[schema["cls"].__name__] = schema["cls"]
        return super().model_schema(schema)


def _structural(found: Schema, path: str) -> Schema:
    """Pydantic's schema of a value as Kubernetes has it: inline, nothing null, with OpenAPI's form of bounds."""
    (only,) = (each for each in found.get("anyOf", [found]) if each.get("type") != "null")
    if "$ref" in only:
        return schema_of(_Generator.models[only["$ref"].rpartition("/")[2]], path)
    kept = [key for key, value in only.items() if key not in ("title", "default") and (key, value) != _NOTHING]
    schema = {key: only[key] for key in sorted(kept, key=lambda key: key != "type")}
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    if "items" in schema:
        schema["items"] = _structural(schema["items"], f"{path}[]")
    for bound in ("minimum", "maximum"):
        exclusive = f"exclusive{bound.title()}"
        if exclusive in schema:
            schema |= {bound: schema[exclusive], exclusive: True}
    if path.startswith("status") and schema.get("maximum") == MAX_INTEGER:
        del schema["maximum"]  # a status is not written by hand
    by_pattern, keys = schema.pop("patternProperties", {}), schema.pop("propertyNames", {})
    values = next(iter(by_pattern.values()), schema.pop("additionalProperties", True))
    if values is not True:
        schema["additionalProperties"] = _structural(values, path)
        if _ANYTHING not in schema["additionalProperties"]:  # else CEL sees nothing of the map
            schema["x-kubernetes-validations"] = [_of_keys(keys.get("minLength", 0), keys["maxLength"])]
    elif not schema or schema.get("type") == "object":
        schema[_ANYTHING] = True
    return schema


def _of_keys(shortest: int, longest: int) -> Validation:
    least, span = (f"key.size() >= {shortest} && ", f"{shortest}") if shortest else ("", "0")
    rule = f"self.all(key, {least}key.size() <= {longest})"
    return {"rule": rule, "message": f"keys: allowed: {span} to {longest} characters"}

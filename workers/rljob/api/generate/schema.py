"""From the types of `rljob.api` to a structural OpenAPI v3 schema for Kubernetes: everything inline, typed, described and
bounded; with the rules of `rljob.api.rules` as x-kubernetes-validations, in CEL.

An API server sees a job as it is written, without presets and defaults. A rule is therefore asked only where all fields that
it reads are written; the job in force is checked by ``rljob validate`` and by the controller, whose verdict is the condition
Accepted.
"""

import copy
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final

from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import core_schema

from rljob.api.effective import default_words
from rljob.api.fields import description_of, marker_of
from rljob.api.job import RLJobSpec
from rljob.api.live import TRANSITIONS, TransitionRule
from rljob.api.presets import is_set
from rljob.api.rule import KEYED, STORED, Rule
from rljob.api.rules import RULES
from rljob.api.types import MAX_INTEGER, Integer, Real

Validation = dict[str, str]
"""One entry of x-kubernetes-validations."""

NOT_IN_CEL = {
    "rules on parameters of the algorithm": "each algorithm has its own defaults and bounds",
    "rules between fields that the manifest does not set": "it does not know presets and defaults",
    "the value of a target, the end of a job with another environment than its preset's, and minSize, maxBatchSize, "
    "maxEpisodeRawFrames, triggerReturn and autoscaling.mode beside others": "few manifests set both",
    "fields below env, tolerations and podTemplate, and patterns of keys in resources, labels and annotations": "it checks them "
    "when pods are made",
    "a replaced key of env, tolerations or podTemplate": "CEL compares only keys that old and new have",
    "duplicates in environment.actions, and actions beside atari.fullActionSpace": "a list or a word has no type for entries",
    "whether an added or removed value is the one already used": "it compares manifests, not effective specs",
}
"""What Python and CEL see differently, and which of the two checks it then."""


def rule_validations(rule: Rule) -> Validation:
    """The validation that stands at the schema of ``rule.at``."""
    written = " && ".join(f"has(self.{path})" for path in _must_be_written(rule))
    guarded = f"!({written}) || ({rule.cel})" if written else rule.cel
    return _validation(guarded, rule.message, rule.field, rule.reason)


def transition_validations(rules: Iterable[TransitionRule]) -> Iterator[Validation]:
    """The validations that compare the stored spec with the new one, one for all fields of a section that say the same."""
    groups: dict[tuple[str, str], list[TransitionRule]] = {}
    for rule in rules:
        groups.setdefault((rule.field.partition(".")[0], rule.message), []).append(rule)
    for (section, message), of_it in groups.items():
        same = " && ".join(rule.cel for rule in of_it)
        freely = ("oldSelf.suspend", "self.suspend") if of_it[0].while_suspended else ()
        cel = " || ".join((same, *freely) if len(of_it) == 1 else (_as_it_was(section), *freely, same))
        place = of_it[0].field if len(of_it) == 1 else section
        named = "" if len(of_it) == 1 else f"{', '.join(rule.field.partition('.')[2] for rule in of_it)}: "
        yield _validation(cel, named + message, place, "FieldValueForbidden")


def _as_it_was(section: str) -> str:
    """Holds where nothing of a section was changed: written in both and the same, or written in neither.

    A server asks every rule anew at each write of a status, which changes nothing of a spec, and for each field that a rule reads
    it builds a table of all fields beside it. Field by field these rules took more than all else that it does for such a write.
    """
    same = f"self.{section} == oldSelf.{section}"
    return (
        same
        if section in STORED
        else f"(has(self.{section}) ? has(oldSelf.{section}) && {same} : !(has(oldSelf.{section})))"
    )


def _must_be_written(rule: Rule) -> list[str]:
    """The fields that the rule reads, each section before what is in it, save what it asks for itself or a server fills in."""
    asked_for = re.findall(r"has\(self\.([.\w]+)\)", rule.cel)
    found = re.finditer(r"\bself\.([.\w]+)(\()?", rule.cel)
    reads = {each[1].rpartition(".")[0] if each[2] else each[1] for each in found}
    paths = (path.split(".") for path in sorted(reads - {*asked_for}))
    needed = dict.fromkeys(".".join(path[:depth]) for path in paths for depth in range(1, len(path) + 1))
    return [path for path in needed if path not in asked_for and path not in STORED]


def _validation(cel: str, message: str, field: str, reason: str) -> Validation:
    found = {"rule": cel, "message": message}
    if reason != "FieldValueInvalid":  # which is what a server says of a rule that gives none
        found["reason"] = reason
    if field:
        found["fieldPath"] = f".{field}"
    return found


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
        key = KEYED.get(name)
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
    if validations := _validations(model):
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

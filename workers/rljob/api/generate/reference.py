"""docs/api-reference.md: every field, type, default and meaning, from the same types as the CRD."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from rljob.api.algorithm import AlgorithmSpec
from rljob.api.apex_dqn import ApeXDQNParameters
from rljob.api.autoscaling import AutoscalingSpec
from rljob.api.computed import COMPUTED
from rljob.api.conditions import CATALOGUE, MEANING_WHEN_TRUE
from rljob.api.environment import EnvironmentSource
from rljob.api.fields import default_of, unwrapped
from rljob.api.generate.cel import NOT_IN_CEL
from rljob.api.generate.schema import flowed
from rljob.api.impala import ImpalaParameters
from rljob.api.job import API_VERSION, KIND, Metadata, RLJobSpec
from rljob.api.lifecycle import CheckpointSpec, CheckpointStorage, FailureRule
from rljob.api.mutability import When, places
from rljob.api.paths import typed_place
from rljob.api.pods import RoleSpec
from rljob.api.presets import PRESETS
from rljob.api.presets.values import paths, values_at
from rljob.api.roles import Accelerator
from rljob.api.rules import RULES
from rljob.api.status import RLJobStatus
from rljob.api.type_words import type_in_words

Row = tuple[str, ...]
_FIELD_HEAD: Row = ("Field", "Type", "Default", "Meaning")


def reference() -> str:
    """The page as Markdown."""
    parts = [_INTRODUCTION, "## metadata\n", _table(_FIELD_HEAD, _fields(Metadata, ""))]
    own = [name for name in RLJobSpec.model_fields if _model(RLJobSpec, name) is None]
    sections = [name for name in RLJobSpec.model_fields if name not in own]
    parts += ["## spec\n", _table(_FIELD_HEAD, _rows(RLJobSpec, own, ""))]
    for name in sections:
        field = RLJobSpec.model_fields[name]
        alias, model = field.alias or name, _model(RLJobSpec, name)
        assert model is not None
        parts += [f"## spec.{alias}\n", f"{flowed(field.description)}\n"]
        if issubclass(model, RoleSpec):
            parts.append("Beside the [fields of every role](#fields-of-every-role):\n")
        shared = RoleSpec.model_fields if issubclass(model, RoleSpec) else {}
        parts.append(_table(_FIELD_HEAD, _rows(model, [name for name in model.model_fields if name not in shared], "")))
    parts += ["## Fields of every role\n", "Of `spec.learner`, `replay`, `actors`, `inference` and `evaluator`.\n"]
    parts.append(_table(_FIELD_HEAD, _fields(RoleSpec, "")))
    parts += ["## Presets\n", _PRESETS_INTRODUCTION, _table(_PRESET_HEAD, _presets())]
    parts += ["### What each sets\n", _table(("Field", *PRESETS), _preset_values())]
    parts += ["## Rules between fields\n", _RULES_INTRODUCTION, _table(("Field", "Rule"), _rules())]
    parts += ["## Changing a job\n", _CHANGING, _table(("Field", "May change", "Because"), _mutability())]
    parts += ["## What a cluster's API server does not check\n", _NOT_CHECKED]
    parts.append("".join(f"- {what}: {why}.\n" for what, why in NOT_IN_CEL.items()))
    parts += ["## status\n", f"{flowed(RLJobStatus.__doc__)} The controller alone writes it.\n"]
    parts.append(_table(("Field", "Type", "Meaning"), (row[:2] + row[3:] for row in _fields(RLJobStatus, ""))))
    parts += ["## Conditions\n", _CONDITIONS]
    parts.append(_table(("Condition", "When True"), ((f"`{t}`", meaning) for t, meaning in MEANING_WHEN_TRUE.items())))
    rows = ((f"`{e.type}`", e.status, f"`{e.reason}`", e.meaning) for e in CATALOGUE)
    parts.append("\n" + _table(("Condition", "Status", "Reason", "Meaning"), rows))
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _table(head: Row, rows: Any) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _model(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    annotation, _ = unwrapped(model.model_fields[name].annotation, [])
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _fields(model: type[BaseModel], prefix: str) -> Iterator[Row]:
    yield from _rows(model, list(model.model_fields), prefix)


def _rows(model: type[BaseModel], names: list[str], prefix: str) -> Iterator[Row]:
    """A row a field, those of a nested object below its own."""
    for name in names:
        field = model.model_fields[name]
        path = f"{prefix}{field.alias or name}"
        place = typed_place(model, [field.alias or name])
        assert place is not None
        yield f"`{path}`", type_in_words(place), _default(model, name), flowed(field.description)
        entry = place.entry
        if entry.model is not None:
            yield from _fields(entry.model, f"{path}[]." if place.is_list else f"{path}.")


def _default(model: type[BaseModel], name: str) -> str:
    field = model.model_fields[name]
    if (model, name) in COMPUTED:
        return COMPUTED[model, name].words
    if field.is_required():
        return "**required**"
    value = default_of(model, name)
    if value is PydanticUndefined:
        return "unset"
    if _model(model, name) is not None:
        return ""
    return f"`{value}`" if isinstance(value, str) and value else f"`{json.dumps(value)}`"


def _presets() -> Iterator[Row]:
    for preset in PRESETS.values():
        yield f"`{preset.name}`", preset.purpose, preset.expected, preset.time, preset.frames, preset.source


def _preset_values() -> Iterator[Row]:
    for path in paths():
        values = values_at(path)
        yield f"`{path}`", *(f"`{json.dumps(values[name])}`" if name in values else "" for name in PRESETS)


def _rules() -> Iterator[Row]:
    for rule in RULES:
        place = _PLACES[rule.at]
        yield f"`{place}.{rule.field}`" if rule.field else f"`{place}`", rule.message


def _mutability() -> Iterator[Row]:
    for place in places(RLJobSpec):
        yield f"`spec.{place.path}`", _WHEN[place.mutability.when], place.mutability.why


_PLACES: Mapping[type[BaseModel], str] = {
    RLJobSpec: "spec",
    AlgorithmSpec: "spec.algorithm",
    ApeXDQNParameters: "spec.algorithm.apeXDQN",
    ImpalaParameters: "spec.algorithm.impala",
    EnvironmentSource: "spec.environment",
    AutoscalingSpec: "spec.autoscaling",
    Accelerator: "spec.learner.accelerator",
    CheckpointSpec: "spec.checkpoint",
    CheckpointStorage: "spec.checkpoint.storage",
    FailureRule: "spec.failurePolicy.rules[]",
}
_INTRODUCTION = f"""\
# API reference: {KIND}, {API_VERSION}

Made from the types in `workers/rljob/api` by `make generate`; the CRD in `manifests/crds` is made from the same types, so
`kubectl explain rljob.spec` says the same. A manifest needs `apiVersion: {API_VERSION}`, `kind: {KIND}`, `metadata.name`
and `spec`; a complete spec is `preset: PongVTrace`. Unknown fields are refused. Numbers are numbers in `spec`; in `status`
those with a fraction are strings. `rljob validate FILE` checks a file without a cluster, `rljob validate FILE --effective`
prints it with everything filled in, and `rljob explain algorithm.impala.learningRate` says of one field what stands here.
"""
_PRESETS_INTRODUCTION = """\
`spec.preset` names one: a whole job, of which everything may be written otherwise beside it, field by field. None sets
`actors.replicas`, which is 1 unless written.
"""
_PRESET_HEAD: Row = ("Preset", "For", "Expected", "Time", "Raw frames", "Source")
_CONDITIONS = """\
`kubectl wait --for=condition=Complete` and scripts may rely on types and reasons; messages are for people. The reason of
`Ready` is the STATE column of `kubectl get`.
"""
_RULES_INTRODUCTION = """\
What each field allows by itself can still be impossible together. `rljob validate` and the API server (CEL) both check these
rules; `rljob validate` shows the numbers. The API server asks a rule only where every field that it reads is written.
"""
_WHEN = {When.ANY_TIME: "at any time", When.WHILE_SUSPENDED: "while suspended", When.NEVER: "never"}
_CHANGING = """\
What may change at any time takes effect at the controller's next look. What may change while the job is suspended is read by
roles when they start: set `spec.suspend: true`, before the change or with it, and resume afterwards; everything starts anew
from a checkpoint. A section stands for all of its fields, save those named below it.
"""
_NOT_CHECKED = """\
`rljob validate` checks everything. On a cluster the API server checks schema and CEL when a job is written; the controller
checks the whole again and answers with the condition `Accepted=False`. The difference between the two:
"""

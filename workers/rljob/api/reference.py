"""docs/api-reference.md: every field, type, default and meaning, from the same types as the CRD."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from rljob.api.algorithm import PARAMETERS, AlgorithmSpec
from rljob.api.autoscaling import AutoscalingSpec
from rljob.api.cel import NOT_IN_CEL, manifest_name
from rljob.api.conditions import CATALOGUE, MEANING_WHEN_TRUE
from rljob.api.environment import EnvironmentParameters
from rljob.api.fields import OWN_DEFAULT, default_of, literal_values, marker_of, unwrapped
from rljob.api.job import API_VERSION, KIND, Metadata, RLJobSpec
from rljob.api.lifecycle import CheckpointSpec, CheckpointStorage, FailureRule
from rljob.api.mutability import When, mark_of, places
from rljob.api.parameters import ParameterSet
from rljob.api.pods import RoleSpec, Toleration
from rljob.api.roles import Accelerator
from rljob.api.rules import RULES
from rljob.api.schema import flowed
from rljob.api.status import RLJobStatus
from rljob.api.types import DecimalText, Integer, QuantityText, Real, Text

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
    for algorithm, (parameters, presets) in PARAMETERS.items():
        parts += [f"## Parameters of {algorithm}\n", f"{flowed(parameters.__doc__)}\n"]
        parts.append(_table(("Parameter", "Allowed", "Default", "Meaning"), _parameters(parameters)))
        parts += [f"### Presets of {algorithm}\n", "What a preset does not name takes its default.\n"]
        parts.append(_table(("Parameter", *presets), _preset_rows(parameters, presets)))
    parts += ["## Parameters of the environment\n", f"{flowed(EnvironmentParameters.__doc__)}\n"]
    parts.append(_table(("Parameter", "Allowed", "Default", "Meaning"), _parameters(EnvironmentParameters)))
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
        annotation, metadata = unwrapped(field.annotation, list(field.metadata))
        yield f"`{path}`", _type(annotation, metadata), _default(model, name), flowed(field.description)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from _fields(annotation, f"{path}.")
        elif get_origin(annotation) is list:
            (item,) = get_args(annotation)
            if isinstance(item, type) and issubclass(item, BaseModel):
                yield from _fields(item, f"{path}[].")


def _type(annotation: Any, metadata: list[Any]) -> str:
    """A type in the words of the manifest, with its range."""
    annotation, metadata = unwrapped(annotation, metadata)
    for marker in metadata:
        if isinstance(marker, DecimalText):
            return f"string: {_range(marker)}"
        if isinstance(marker, Integer | Real):
            return _range(marker)
        if isinstance(marker, Text):
            return f"string: {marker.allowed.removeprefix('allowed: ')}" if marker.kind != "text" else "string"
        if isinstance(marker, QuantityText):
            return "quantity, such as `500m`, `2` or `4Gi`"
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{word}`" if word else '`""`' for word in get_args(annotation))
    if get_origin(annotation) is list:
        return f"list of {_type(get_args(annotation)[0], [])}"
    if get_origin(annotation) is dict:
        return "map"
    if annotation is bool:
        return "`true`, `false`"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "object"
    return {int: "integer", float: "time"}.get(annotation, "string")


def _range(marker: Integer | Real) -> str:
    return marker.allowed.removeprefix("allowed: ").removeprefix("an ").removeprefix("a ")


def _default(model: type[BaseModel], name: str) -> str:
    field = model.model_fields[name]
    if (model.__name__, name) in OWN_DEFAULT:
        return OWN_DEFAULT[(model.__name__, name)]
    if field.is_required():
        return "**required**"
    value = default_of(model, name)
    if value is PydanticUndefined:
        return "unset"
    if _model(model, name) is not None:
        return ""
    return f"`{value}`" if isinstance(value, str) and value else f"`{json.dumps(value)}`"


def _parameters(model: type[ParameterSet]) -> Iterator[Row]:
    for python_name, field in model.model_fields.items():
        marker, words = marker_of(field), literal_values(field)
        if isinstance(marker, Integer | Real):
            allowed = _range(marker)
        elif words:
            allowed = ", ".join(f"`{word}`" for word in words)
        else:
            allowed = "`true`, `false`" if field.annotation is bool else "text"
        yield f"`{manifest_name(model, python_name)}`", allowed, _value(model, python_name), flowed(field.description)


def _value(model: type[ParameterSet], python_name: str) -> str:
    field = model.model_fields[python_name]
    if python_name == "learning_rate_final":
        return "`learningRate`"
    value = field.get_default(call_default_factory=False)
    return "unset" if value is None else _written(value)


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{value}`" if value not in ((), "") else '`""`'


def _preset_rows(model: type[ParameterSet], presets: Mapping[str, Mapping[str, Any]]) -> Iterator[Row]:
    for python_name in model.model_fields:
        if any(python_name in values for values in presets.values()):
            cells = (_written(values[python_name]) if python_name in values else "" for values in presets.values())
            yield f"`{manifest_name(model, python_name)}`", *cells


def _rules() -> Iterator[Row]:
    for rule in RULES:
        place = _PLACES[rule.at]
        yield f"`{place}.{rule.field}`" if rule.field else f"`{place}`", rule.message
    for name, (model, _) in PARAMETERS.items():
        for between in model.rules:
            yield f"{name} `{between.field}`", f"allowed: {between.message}"
    for between in EnvironmentParameters.rules:
        yield f"environment `{between.field}`", f"allowed: {between.message}"


def _mutability() -> Iterator[Row]:
    for place in places(RLJobSpec):
        yield f"`spec.{place.path}`", _WHEN[place.mutability.when], place.mutability.why
    for algorithm, (model, _) in PARAMETERS.items():
        for python_name, field in model.model_fields.items():
            mark = mark_of(field)
            if mark is not None:
                yield f"{algorithm} `{manifest_name(model, python_name)}`", _WHEN[mark.when], mark.why


_PLACES: Mapping[type[BaseModel], str] = {
    RLJobSpec: "spec",
    AlgorithmSpec: "spec.algorithm",
    AutoscalingSpec: "spec.autoscaling",
    Accelerator: "spec.learner.accelerator",
    CheckpointSpec: "spec.checkpoint",
    CheckpointStorage: "spec.checkpoint.storage",
    FailureRule: "spec.failurePolicy.rules[]",
    Toleration: "placement.tolerations[]",
}
_INTRODUCTION = f"""\
# API reference: {KIND}, {API_VERSION}

Made from the types in `workers/rljob/api` by `make generate`; the CRD in `manifests/crds` is made from the same types, so
`kubectl explain rljob.spec` says the same. A manifest needs `apiVersion: {API_VERSION}`, `kind: {KIND}`, `metadata.name`
and `spec`. Unknown fields are refused. Numbers with a fraction are strings in the manifest (`"0.6"`), because Kubernetes
APIs hold no floats. `rljob validate FILE` checks a file without a cluster; it also accepts unquoted numbers where a string is
expected, which `kubectl apply` does not.
"""
_CONDITIONS = """\
`kubectl wait --for=condition=Complete` and scripts may rely on types and reasons; messages are for people. The reason of
`Ready` is the STATE column of `kubectl get`.
"""
_RULES_INTRODUCTION = """\
What each field allows by itself can still be impossible together. `rljob validate` and the API server (CEL) both check these
rules; `rljob validate` shows the numbers.
"""
_WHEN = {When.ANY_TIME: "at any time", When.WHILE_SUSPENDED: "while suspended", When.NEVER: "never"}
_CHANGING = """\
What may change at any time takes effect at the controller's next look. What may change while the job is suspended is read by
roles when they start: set `spec.suspend: true`, before the change or with it, and resume afterwards; everything starts anew
from a checkpoint. A section stands for all of its fields; of an algorithm's parameters, those listed last never change.
"""
_NOT_CHECKED = """\
`rljob validate` checks everything. On a cluster the API server checks schema and CEL when a job is written; the controller
checks the whole again and answers with the condition `Accepted=False`. The difference between the two:
"""

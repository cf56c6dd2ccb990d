"""docs/api-reference.md: every field, type, default and meaning, from the same types as the CRD."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from rljob.api.conditions import CATALOGUE, MEANING_WHEN_TRUE
from rljob.api.effective import default_words
from rljob.api.experiment import RLExperimentSpec
from rljob.api.generate.cel import NOT_IN_CEL
from rljob.api.generate.schema import flowed
from rljob.api.job import API_VERSION, KIND, Metadata, RLJobSpec
from rljob.api.learned import UNLEARNED
from rljob.api.mutability import When, places
from rljob.api.parameters import ParameterSet
from rljob.api.paths import TypedPlace, places_below
from rljob.api.pods import RoleSpec
from rljob.api.preset import OF_ITS_ENVIRONMENT
from rljob.api.presets import PRESETS
from rljob.api.presets.values import paths, values_at
from rljob.api.rules import RULES
from rljob.api.status import RLJobStatus
from rljob.api.type_words import type_in_words

Row = tuple[str, ...]
_FIELD_HEAD: Row = ("Field", "Type", "Default", "Meaning")


def reference() -> str:
    """The page as Markdown."""
    parts = [_INTRODUCTION, "## metadata\n", _table(_FIELD_HEAD, _rows(TypedPlace(Metadata)))]
    of_spec = list(TypedPlace(RLJobSpec).fields_below())
    own = [row for name, place in of_spec if place.model is None for row in _row(name, place)]
    parts += ["## spec\n", _table(_FIELD_HEAD, own)]
    for name, place in of_spec:
        if place.model is None:
            continue
        parts += [f"## spec.{name}\n", f"{flowed(place.description)}\n"]
        is_role = issubclass(place.model, RoleSpec)
        if is_role:
            parts.append("Beside the [fields of every role](#fields-of-every-role):\n")
        parts.append(_table(_FIELD_HEAD, _rows(place, without=TypedPlace(RoleSpec).field_names if is_role else ())))
    parts += ["## Fields of every role\n", "Of `spec.learner`, `replay`, `actors`, `inference` and `evaluator`.\n"]
    parts.append(_table(_FIELD_HEAD, _rows(TypedPlace(RoleSpec))))
    parts += ["## Presets\n", _PRESETS_INTRODUCTION, _table(_PRESET_HEAD, _presets())]
    parts += ["### What each sets\n", _table(("Field", *PRESETS), _preset_values())]
    parts += ["## Rules between fields\n", _RULES_INTRODUCTION, _table(("Field", "Rule"), _rules())]
    parts += ["## Changing a job\n", _CHANGING, _table(("Field", "May change", "Because"), _mutability())]
    parts += ["## What a cluster's API server does not check\n", _NOT_CHECKED]
    parts.append("".join(f"- {what}: {why}.\n" for what, why in NOT_IN_CEL.items()))
    parts += ["## status\n", f"{flowed(RLJobStatus.__doc__)} The controller alone writes it.\n"]
    parts.append(_table(("Field", "Type", "Meaning"), (row[:2] + row[3:] for row in _rows(TypedPlace(RLJobStatus)))))
    parts += ["## Conditions\n", _CONDITIONS]
    parts.append(_table(("Condition", "When True"), ((f"`{t}`", meaning) for t, meaning in MEANING_WHEN_TRUE.items())))
    rows = ((f"`{e.type}`", e.status, f"`{e.reason}`", e.meaning) for e in CATALOGUE)
    parts.append("\n" + _table(("Condition", "Status", "Reason", "Meaning"), rows))
    parts += ["## RLExperiment\n", _EXPERIMENT]
    parts.append(_table(_FIELD_HEAD, _rows(TypedPlace(RLExperimentSpec), "spec.", without=("template",))))
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def field_table(section: TypedPlace) -> str:
    """Every field of a section as a table of Markdown: name, type, default, meaning."""
    return _table(_FIELD_HEAD, _rows(section))


def _table(head: Row, rows: Any) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _rows(section: TypedPlace, prefix: str = "", without: Sequence[str] = ()) -> Iterator[Row]:
    """The rows of the fields of a section, save those of ``without``."""
    for name, place in section.fields_below():
        if name not in without:
            yield from _row(f"{prefix}{name}", place)


def _row(path: str, place: TypedPlace) -> Iterator[Row]:
    """The row of a field; those of the fields below it come after it."""
    yield f"`{path}`", type_in_words(place), _default(place), flowed(place.description)
    yield from _rows(place.entry, f"{path}[]." if place.is_list else f"{path}.")


def _default(place: TypedPlace) -> str:
    assert place.owner is not None
    assert place.field is not None
    if place.field.is_required():
        return "**required**"
    words = default_words(place.owner, place.name, _in_code)
    return "" if place.model is not None and words != "unset" else words


def _in_code(value: Any) -> str:
    return f"`{value}`" if isinstance(value, str) and value else f"`{json.dumps(value)}`"


def _presets() -> Iterator[Row]:
    for preset in PRESETS.values():
        yield f"`{preset.name}`", preset.purpose, preset.expected, preset.time, preset.frames, preset.source


def _preset_values() -> Iterator[Row]:
    for path in paths():
        values = values_at(path)
        yield f"`{path}`", *(f"`{json.dumps(values[name])}`" if name in values else "" for name in PRESETS)


def _rules() -> Iterator[Row]:
    places_of = {place.entry.model: f"{path}{'[]' if place.is_list else ''}" for path, place in _PLACES}
    for rule in RULES:
        place = "spec.algorithm" if rule.at is ParameterSet else places_of[rule.at]
        yield f"`{place}.{rule.field}`" if rule.field else f"`{place}`", rule.message


def _mutability() -> Iterator[Row]:
    for place in places(RLJobSpec):
        yield f"`spec.{place.path}`", _WHEN[place.mutability.when], place.mutability.why


_PLACES = [("spec", TypedPlace(RLJobSpec)), *places_below(TypedPlace(RLJobSpec), "spec")]
_INTRODUCTION = f"""\
# API reference: {KIND}, {API_VERSION}

Made from the types in `workers/rljob/api` by `make generate`; the CRD in `manifests/crds` is made from the same types, so
`kubectl explain rljob.spec` says the same. A manifest needs `apiVersion: {API_VERSION}`, `kind: {KIND}`, `metadata.name`
and `spec`; a complete spec is `preset: PongVTrace`. Unknown fields are refused. Numbers are numbers in `spec`; in `status`
those with a fraction are strings. `rljob validate FILE` checks a file without a cluster, `rljob render FILE --effective`
prints it with everything filled in, and `rljob explain algorithm.learningRate` says of one field what stands here.
"""
_PRESETS_INTRODUCTION = """\
`spec.preset` names one: a whole job, of which everything may be written otherwise beside it, field by field, or taken away with
`spec.presetWithout`. None sets `actors.replicas`, which is 1 unless written.

Beside another `environment.id` than its own, what a preset says of its environment does not count: {}.
`rljob validate`, `rljob run` and the message of `Accepted` name the values. The job then needs an end of its own. `ApeXAtari` and
`ImpalaAtari` were published for many games, and count as a whole for each.
""".format(", ".join(f"`{path}`" for path in OF_ITS_ENVIRONMENT))
_PRESET_HEAD: Row = ("Preset", "For", "Expected", "Time", "Raw frames", "Source")
_CONDITIONS = """\
`kubectl wait --for=condition=Complete` and scripts may rely on types and reasons; messages are for people. The reason of
`Ready` is the STATE column of `kubectl get`.
"""
_RULES_INTRODUCTION = """\
What each field allows by itself can still be impossible together. `rljob validate` and the API server (CEL) both check these
rules; `rljob validate` shows the numbers. The API server asks a rule only where every field that it reads is written, and none of
those that read parameters of an algorithm.
"""
_EXPERIMENT = """\
[Several runs as one experiment](experiments.md): `kind: RLExperiment`, for `rljob run` and `kubectl apply`. `spec.template.spec`,
required, is the `spec` of an RLJob, `spec.template.metadata` labels and annotations of every run; `rljob explain rlexperiment`
says what stands here.
"""
_WHEN = {When.ANY_TIME: "at any time", When.LIVE: "live", When.WHILE_SUSPENDED: "while suspended", When.NEVER: "never"}
_CHANGING = """\
What may change at any time takes effect at the controller's next look. What is live may, too, and a running learner takes it
between two updates, without a restart (`rljob set`, or `kubectl patch`). What may change while the job is suspended is read by
roles when they start: set `spec.suspend: true`, before the change or with it, and resume afterwards; everything starts anew
from a checkpoint. A section stands for all of its fields, save those named below it.

Jobs that differ only in these fields learn the same, as far as `rljob compare` and the resumption of an experiment go (`*`
stands for a role): {}.
""".format(
    ", ".join(
        dict.fromkeys(
            f"`*.{name}`" if (name := path.partition(".")[2]) in TypedPlace(RoleSpec).field_names else f"`{path}`"
            for path in UNLEARNED
        )
    )
)
_NOT_CHECKED = """\
`rljob validate` checks everything. On a cluster the API server checks schema and CEL when a job is written; the controller
checks the whole again and answers with the condition `Accepted=False`. The difference between the two:
"""

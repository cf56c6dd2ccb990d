"""docs/api-reference.md: every field, type, default and meaning, from the same types as the CRD."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from rljob.api.catalogue import type_in_words
from rljob.api.conditions import CATALOGUE, MEANING_WHEN_TRUE, ConditionType
from rljob.api.declaration import OF_ITS_ENVIRONMENT
from rljob.api.effective import default_words
from rljob.api.experiment import RLExperimentSpec
from rljob.api.fields import TypedPlace, places_below
from rljob.api.generate.schema import NOT_IN_CEL, flowed
from rljob.api.job import API_VERSION, KIND, Metadata, RLJobSpec
from rljob.api.live import UNLEARNED
from rljob.api.mutability import WHILE_SUSPENDED, Mutability, When, places
from rljob.api.parameters import ParameterSet
from rljob.api.presets import PRESETS
from rljob.api.roles import Accelerator, RoleSpec
from rljob.api.rules import RULES
from rljob.api.status import RLJobStatus


def reference() -> str:
    """The page as Markdown."""
    of_spec = list(TypedPlace(RLJobSpec).fields_below())
    own = (_with_below(name, place) for name, place in of_spec if place.model is None)
    parts = [_INTRODUCTION, "## metadata\n", field_list(TypedPlace(Metadata)), "## spec\n", "".join(own)]
    for name, place in of_spec:
        if place.model is None:
            continue
        is_role = issubclass(place.model, RoleSpec)
        also = " Also: [fields of every role](#fields-of-every-role)." if is_role else ""
        parts += [f"## spec.{name}\n", f"{flowed(place.description)}{also}\n"]
        parts.append(
            field_list(place, without=_SAID_OF_ROLES.get(name, TypedPlace(RoleSpec).field_names) if is_role else ())
        )
    parts += [
        "## Fields of every role\n",
        field_list(TypedPlace(RoleSpec)),
        "## Presets\n",
        _PRESETS,
        "".join(
            f"- `{each.name}`: {each.purpose}. Score: {each.expected}. Time: {each.time}.\n"
            for each in PRESETS.values()
        ),
    ]
    parts += ["## Rules between fields\n", _RULES, "".join(_rules()), "## Changing a job\n", _CHANGING]
    parts += ["".join(_mutability()), _UNLEARNED, "## What a cluster's API server does not check\n", _NOT_CHECKED]
    parts.append("".join(f"- {what}: {why}.\n" for what, why in NOT_IN_CEL.items()))
    of_status = field_list(TypedPlace(RLJobStatus), without=_SAID_ONCE, typed=False)
    parts += ["## status\n", _STATUS, of_status, "## Conditions\n", _CONDITIONS, *_conditions()]
    parts += ["## RLExperiment\n", _EXPERIMENT, field_list(TypedPlace(RLExperimentSpec), "spec.", ("spec.template",))]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def field_list(section: TypedPlace, prefix: str = "", without: Sequence[str] = (), *, typed: bool = True) -> str:
    """The fields of a section, save those of ``without``, as a list of Markdown: name, type and default (``typed``), meaning."""
    found = ((prefix + name, place) for name, place in section.fields_below() if prefix + name not in without)
    return "".join(_with_below(path, place, without, typed) for path, place in found)


def _with_below(path: str, place: TypedPlace, without: Sequence[str] = (), typed: bool = True) -> str:
    """The line of a field, and those of the fields below it."""
    type = type_in_words(place).removeprefix("one of ").removeprefix("text: ")
    taken = ", ".join(filter(None, (type, _default(place)))) if typed and place.model is None else ""
    line = f"- `{path}`{f' ({taken})' if taken else ''}: {flowed(place.description)}\n".replace("<", "&lt;")  # no tag
    return line + field_list(place.entry, f"{path}[]." if place.is_list else f"{path}.", without, typed=typed)


def _default(place: TypedPlace) -> str:
    assert place.owner is not None
    assert place.field is not None
    if place.field.is_required():
        return "**required**"
    words = default_words(place.owner, place.name, _in_code)
    return "" if words in ("unset", "`[]`", "`{}`", '`""`') else f"default {words}"


def _in_code(value: Any) -> str:
    return f"`{value}`" if isinstance(value, str) and value else f"`{json.dumps(value)}`"


def _rules() -> Iterator[str]:
    places_of = {place.entry.model: f"{path}{'[]' if place.is_list else ''}" for path, place in reversed(_PLACES)}
    for rule in RULES:
        place = "spec.algorithm" if rule.at is ParameterSet else places_of[rule.at]
        path = f"{place}.{rule.field}" if rule.field else place
        yield f"- `{path.removeprefix('spec.')}`: {rule.message.partition(';')[0].removeprefix('allowed: ')}\n"


def _mutability() -> Iterator[str]:
    """A line for the fields that may change at the same time for the same reason; those left out may while a job is suspended."""
    found: dict[Mutability, list[str]] = {}
    for place in places(RLJobSpec):
        found.setdefault(place.mutability, []).append(f"`{place.path}`")
    del found[WHILE_SUSPENDED]
    for mark in sorted(found, key=lambda mark: list(_WHEN).index(mark.when)):
        yield f"- {_WHEN[mark.when]}{f' ({mark.why})' if mark.why else ''}: {', '.join(found[mark])}\n"


def _conditions() -> Iterator[str]:
    """Each condition with its reasons; those that have the same ones together."""
    reasons: dict[str, list[str]] = {}
    for type in ConditionType:
        lines = (f"- {e.status} `{e.reason}`: {e.meaning}\n" for e in CATALOGUE if e.type is type)
        reasons.setdefault("".join(lines), []).append(f"`{type}` ({MEANING_WHEN_TRUE[type]})")
    for told, types in reasons.items():
        yield f"{'; '.join(types)}:\n\n{told}"


_PLACES = [("spec", TypedPlace(RLJobSpec)), *places_below(TypedPlace(RLJobSpec), "spec")]
_INTRODUCTION = f"""\
# API reference: {KIND}, {API_VERSION}

A manifest has `apiVersion: {API_VERSION}`, `kind: {KIND}`, `metadata.name` and `spec`; a complete spec is `preset: PongVTrace`.
Unknown fields are refused. Brackets hold the type and the default of a field; a field without a default is unset or empty. `[]`
is an entry of a list.

`rljob validate FILE` checks a manifest without a cluster. `rljob render FILE --effective` prints it with all defaults.
`rljob explain FIELD` prints the same; `make generate` makes this page from `workers/rljob/api`.
"""
_PRESETS = """\
`spec.preset: NAME` starts from one of these jobs. `rljob render NAME` prints all that a preset sets, `rljob explain preset` also
raw frames and sources. No preset sets `actors.replicas`.

With another `environment.id`, a preset's values for its own environment do not apply: {}.
`rljob validate` lists them. Such a job needs its own end. `ApeXAtari` and `ImpalaAtari` apply to every game as a whole.
""".format(", ".join(f"`{path}`" for path in OF_ITS_ENVIRONMENT))
_CONDITIONS = """\
Scripts may rely on types and reasons; messages are for people. `kubectl get` shows the reason of `Ready` as STATE. In brackets:
the meaning of True.
"""
_RULES = """\
`rljob validate` checks these rules and prints the reason and the numbers. A cluster's API server [does not check all of
them](#what-a-clusters-api-server-does-not-check).
"""
_EXPERIMENT = """\
`kind: RLExperiment` runs [several jobs as one experiment](experiments.md). `spec.template.spec`, required, is the `spec` of an
RLJob; `spec.template.metadata` has labels and annotations for every run.
"""
_WHEN = {When.ANY_TIME: "At any time", When.LIVE: "Live", When.WHILE_SUSPENDED: "While suspended", When.NEVER: "Never"}
_CHANGING = """\
Fields that are not listed here may change while the job is suspended: set `spec.suspend: true` before the change or with it,
then resume; all roles restart from a checkpoint. A change "at any time" takes effect at the controller's next reconciliation. A
"live" one reaches the running learner between two updates (`rljob set` or `kubectl patch`). A section stands for all its
unlisted fields.
"""
_UNLEARNED = """\
These fields do not affect what is learned, so `rljob compare` and a resumed experiment ignore them (`*`: any role): {}.
""".format(
    ", ".join(
        dict.fromkeys(
            f"`*.{name}`" if (name := path.partition(".")[2]) in TypedPlace(RoleSpec).field_names else f"`{path}`"
            for path in UNLEARNED
        )
    )
)
_NOT_CHECKED = """\
The API server checks schema and CEL when you apply a job; the controller checks the rest and may set `Accepted=False`.
`rljob validate` checks everything. Left to these two:
"""
_STATUS = """\
Counts are integers, other numbers strings, times RFC 3339. `controller` and `autoscaling.memory` may change between
releases. `rljob explain status.autoscaling.calculation` lists the numbers of a scaling decision.
"""
_SAID_OF_ROLES = {
    "replay": (*TypedPlace(RoleSpec).field_names, "redis.resources.requests", "redis.resources.limits"),
    "inference": (
        *TypedPlace(RoleSpec).field_names,
        *(f"accelerator.{name}" for name in TypedPlace(Accelerator).field_names),
    ),
}
"""Of a role, all that the page says of other ones, too, where that is more than the fields of every role."""
_SAID_ONCE = ("controller", "conditions", "autoscaling.calculation", "autoscaling.memory")
"""Fields of the status of which the page says no more than that."""

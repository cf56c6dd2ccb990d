"""A rule between fields. Python checks each; the cluster's API server (CEL) those of fields that a manifest has all by hand.

The two texts of a rule stand side by side, and a property test compares their verdicts, so that they cannot drift apart.
Python's message shows the numbers; the cluster's says the same without them. What is said of lists alike is in `KEYED`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from rljob.api.controller_memory import ControllerMemory
from rljob.api.experiment_status import RLExperimentStatus
from rljob.api.job import RLJobSpec
from rljob.api.lifecycle import CheckpointSpec, FailurePolicy, FailureRule
from rljob.api.problems import ABSENT
from rljob.api.replay import ReplaySpec
from rljob.api.roles import ActorsSpec, EvaluatorSpec, InferenceSpec, LearnerSpec
from rljob.api.status import RLJobStatus
from rljob.api.types import plain_number

Reason = Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"]


STORED: Mapping[str, Any] = MappingProxyType(
    {"suspend": False, "actors": {}, "actors.replicas": 1, "algorithm": {}, "evaluator": {}}
)
"""What an API server fills in below ``spec`` where it is not written: the number of actors, because ``/scale``, ``kubectl scale``
and autoscalers read it from the stored job; ``suspend``, which no preset sets; and empty sections, which say nothing and make
rules about what is in them shorter. All other defaults are filled in by those who read a job: a stored one would win over a
preset."""


@dataclass(frozen=True, slots=True)
class Broken:
    """What Python says of a broken rule, where the value to show is not simply the field's own."""

    message: str
    value: Any


Outcome = str | Broken | None
"""What is allowed (with the numbers), or None where the rule holds."""
Check = TypeVar("Check", bound=Callable[..., Outcome])


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule about every place of type ``at``."""

    name: str
    at: type[BaseModel]
    """The type that it is about: ``self`` in CEL, the first argument of ``check``."""
    field: str
    """The field to change, below ``self``, in the manifest's words; empty for ``self`` as a whole."""
    message: str
    check: Callable[..., Outcome]
    """Given what ``self`` is in CEL, of a job in force."""
    cel: str = ""
    """True where all is well with what is written; it is asked only where all fields that it reads are written, save those that
    it asks for with ``has`` itself (`rljob.api.generate.schema`). Empty where Python alone tells."""
    algorithm: str | None = None
    """The algorithm whose jobs it is about; None for all."""
    parameters: tuple[str, ...] = ()
    """The parameters of the algorithm that it reads. It is about the algorithms that have all of them."""
    also: tuple[str, ...] = ()
    """Fields below ``self`` that ``check`` reads, where there is no CEL."""
    reason: Reason = "FieldValueInvalid"

    @property
    def asks_for(self) -> frozenset[str]:
        """The fields below ``self`` that it asks for with ``has``."""
        return frozenset(re.findall(r"has\(self\.([.\w]+)\)", self.cel))

    @property
    def reads(self) -> frozenset[str]:
        """The fields below ``self`` that it reads, save those that it asks for."""
        found = re.finditer(r"\bself\.([.\w]+)(\()?", self.cel)
        return (
            frozenset(self.also)
            | {each[1].rpartition(".")[0] if each[2] else each[1] for each in found} - self.asks_for
        )


def holds(
    name: str, at: type[BaseModel], field: str, test: Callable[[Any], bool], *, message: str, **rest: Any
) -> Rule:
    """A rule whose message needs no numbers: ``test`` of what `Rule.check` is given is true where it holds. ``rest``: what else a
    `Rule` has."""
    return Rule(name, at, field, message, lambda it: None if test(it) else message, **rest)


def at_most(name: str, at: type[BaseModel], field: str, other: str, why: str, **rest: Any) -> Rule:
    """The rule that ``field`` is at most the field ``other``, both in the manifest's words below ``at``."""
    return _compared(name, at, field, "at most", other, why, lambda mine, its: mine <= its, rest)


def at_least(name: str, at: type[BaseModel], field: str, other: str, why: str, **rest: Any) -> Rule:
    """The rule that ``field`` is at least the field ``other``."""
    return _compared(name, at, field, "at least", other, why, lambda mine, its: mine >= its, rest)


def _compared(
    name: str,
    at: type[BaseModel],
    field: str,
    words: str,
    other: str,
    why: str,
    right: Callable[[Any, Any], bool],
    rest: Mapping[str, Any],
) -> Rule:
    def check(it: Any) -> Outcome:
        mine, its = value_at(it, field), value_at(it, other)
        right_or_absent = mine is ABSENT or right(mine, its)
        return None if right_or_absent else f"allowed: {words} {other} ({its:,}); {why}"

    return Rule(name, at, field, f"allowed: {words} {other}; {why}", check, **rest)


def value_at(node: Any, field: str) -> Any:
    """What stands at ``field`` below ``node``: ABSENT for nothing and for whole sections."""
    for part in filter(None, field.split(".")):
        name = next(n for n, f in type(node).model_fields.items() if (f.alias or n) == part)
        node = getattr(node, name)
        if node is None:
            return ABSENT
    return ABSENT if isinstance(node, BaseModel | list) else plain_number(node)


@dataclass(frozen=True, slots=True)
class Difference:
    """A place below ``spec`` where an old and a new job differ, and the new value there; ABSENT for nothing and for sections."""

    path: str
    value: Any


@dataclass(frozen=True, slots=True)
class TransitionRule:
    """One rule about a change of a job's spec: ``oldSelf`` and ``self`` in CEL, ``broken(old, new)`` in Python."""

    field: str
    cel: str
    """True where what is written there is as it was."""
    message: str
    broken: Callable[..., list[Difference]]
    """What of a change is not allowed; empty where all of it is."""
    while_suspended: bool
    """Whether the field may change while the job is suspended; else never."""


def rule(
    at: type[BaseModel],
    field: str,
    *,
    message: str,
    cel: str = "",
    algorithm: str | None = None,
    parameters: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
    reason: Reason = "FieldValueInvalid",
) -> Callable[[Check], Rule]:
    """Make a `Rule` of the function below it, which gives it its name."""

    def made(check: Check) -> Rule:
        return Rule(check.__name__, at, field, message, check, cel, algorithm, parameters, also, reason)

    return made


_ROLES = (LearnerSpec, ReplaySpec, ActorsSpec, InferenceSpec, EvaluatorSpec)

KEYED: dict[tuple[type[BaseModel], str], str] = {
    (RLJobSpec, "image_pull_secrets"): "name",
    (RLJobSpec, "preset_without"): "",
    (CheckpointSpec, "include"): "",
    (FailurePolicy, "rules"): "name",
    (FailureRule, "roles"): "",
    (RLJobStatus, "conditions"): "type",
    (RLExperimentStatus, "conditions"): "type",
    (ControllerMemory, "members"): "name",
    **{(role, "env"): "name" for role in _ROLES},
}
"""(model, Python field) -> the entries' key; empty for a set."""

"""A rule between fields, written once for both doors: Python (``rljob validate``) and CEL (the cluster's API server).

The two texts of a rule stand side by side, and a property test compares their verdicts, so that they cannot drift apart.
Python's message shows the numbers; the cluster's says the same without them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

Reason = Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"]


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
    cel: str
    """True where all is well. ``$batchSize`` stands for that parameter's value, preset and default applied."""
    message: str
    check: Callable[..., Outcome]
    """``check(node)``, or ``check(node, parameters)`` for a rule of one algorithm."""
    algorithm: str | None = None
    """The algorithm whose jobs it is about; None for all."""
    reason: Reason = "FieldValueInvalid"
    cluster_only: bool = False
    """It is about something that one machine does in its own way, such as where checkpoints go."""


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
    message: str
    broken: Callable[..., list[Difference]]
    """What of a change is not allowed; empty where all of it is."""


def rule(
    at: type[BaseModel],
    field: str,
    *,
    cel: str,
    message: str,
    algorithm: str | None = None,
    reason: Reason = "FieldValueInvalid",
    cluster_only: bool = False,
) -> Callable[[Check], Rule]:
    """Make a `Rule` of the function below it, which gives it its name."""

    def made(check: Check) -> Rule:
        return Rule(check.__name__.strip("_"), at, field, cel, message, check, algorithm, reason, cluster_only)

    return made

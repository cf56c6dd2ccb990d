"""What a condition says, before its times and generation are added; and how that becomes part of the status."""

from collections.abc import Iterable
from dataclasses import dataclass

from rljob.api.conditions import ConditionType, Reason
from rljob.api.status import Condition

from rljob_operator.core.context import bounded

_ORDER = tuple(type.value for type in ConditionType)
_SAID = set(Condition.model_fields)
"""Every condition has all of its fields set. They share one set of the fields' names, which takes more memory than a condition; a
job has about a dozen of them."""


@dataclass(frozen=True, slots=True)
class ConditionUpdate:
    """One statement: type, status, reason, message. Without a status it removes the condition."""

    type: ConditionType
    status: str
    reason: Reason | str
    message: str = ""


def true(type: ConditionType, reason: Reason | str, message: str = "") -> ConditionUpdate:
    """It holds."""
    return ConditionUpdate(type, "True", reason, message)


def false(type: ConditionType, reason: Reason | str, message: str = "") -> ConditionUpdate:
    """It does not hold."""
    return ConditionUpdate(type, "False", reason, message)


def withdrawn(type: ConditionType) -> ConditionUpdate:
    """The condition is removed."""
    return ConditionUpdate(type, "", "")


def merged(
    before: list[Condition], updates: Iterable[ConditionUpdate | None], generation: int, now: float
) -> list[Condition]:
    """The conditions after ``updates``: a transition time changes only with the status, and a rule that answers None leaves
    the condition as it was.

    Answers ``before`` itself where nothing changed.
    """
    known: dict[str, Condition] = {c.type: c for c in before}
    changed = False
    for each in updates:
        if each is None:
            continue
        old = known.get(each.type.value)
        if not each.status:
            changed = known.pop(each.type.value, None) is not None or changed
            continue
        reason, message = str(each.reason), bounded(each.message)
        if old is not None and (old.status, old.reason, old.message, old.observed_generation) == (
            each.status,
            reason,
            message,
            generation,
        ):
            continue
        changed = True
        known[each.type.value] = Condition.model_construct(
            _SAID,
            type=each.type.value,
            status=each.status,
            reason=reason,
            message=message,
            observed_generation=generation,
            last_transition_time=old.last_transition_time if old is not None and old.status == each.status else now,
        )
    return [known[type] for type in _ORDER if type in known] if changed else before

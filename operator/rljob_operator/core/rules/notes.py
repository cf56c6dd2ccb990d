"""Events: what changed between two statuses, a sentence each."""

from typing import Final

from rljob.api.conditions import ConditionType, Reason
from rljob.api.status import Condition, Failure, RLJobStatus

from rljob_operator.core.decision import Note
from rljob_operator.core.rules.failures import with_code

_AT_FIRST: Final = frozenset(
    {
        Reason.PODS_PENDING,
        Reason.STARTING,
        Reason.WARMING_UP,
        Reason.SCALING_DISABLED,
        Reason.DESIRED_WITHIN_RANGE,
        Reason.MISSING,
        Reason.VALID,
    }
)
"""Reasons of conditions that every new job has: events about them would tell nothing."""
_TROUBLE: Final = frozenset(
    {
        Reason.ACTORS_CRASH_LOOPING,
        Reason.BACKOFF_LIMIT_EXCEEDED,
        Reason.CRASH_LOOPING,
        Reason.DEADLINE_EXCEEDED,
        Reason.DEGRADED,
        Reason.EXPERIENCE_BLOCKED,
        Reason.FAILED,
        Reason.FAILURE_POLICY_RULE,
        Reason.GONE,
        Reason.IMAGE_PULL_FAILED,
        Reason.INVALID_SPEC,
        Reason.KEYS_LOST,
        Reason.LEARNER_STALLED,
        Reason.NAME_CONFLICT,
        Reason.NAMESPACE_TERMINATING,
        Reason.NODE_LOST,
        Reason.NON_FINITE_LOSS,
        Reason.NOT_MADE,
        Reason.POD_SECURITY_FORBIDDEN,
        Reason.POD_TEMPLATE_REJECTED,
        Reason.PROGRESS_DEADLINE_EXCEEDED,
        Reason.QUOTA_EXCEEDED,
        Reason.RENDERING_UNKNOWN,
        Reason.STALE,
        Reason.STARTUP_DEADLINE_EXCEEDED,
        Reason.STORAGE_ERROR,
        Reason.TWO_AUTOSCALERS,
        Reason.UNSCHEDULABLE,
    }
)
"""Reasons of conditions that a person should look at; what belongs to coming up, going down and scaling is not among them."""


def between(before: RLJobStatus, after: RLJobStatus) -> tuple[Note, ...]:
    """New failures, changed conditions, and a changed number of actors."""
    if after is before:
        return ()
    found = [_end(failure) for failure in after.failures if failure not in before.failures]
    known = {c.type: c for c in before.conditions}
    # Stalled says again what Failed says.
    found += [
        _sentence(c) for c in after.conditions if c.type != ConditionType.STALLED and _differs(known.get(c.type), c)
    ]
    was, now = before.autoscaling.desired_replicas, after.autoscaling.desired_replicas
    if was != now and before.start_time is not None:
        found.append(Note(f"actors {was} -> {now}: {after.autoscaling.last_decision}"))
    return tuple(found)


def _differs(old: Condition | None, new: Condition) -> bool:
    if old is None:
        return new.reason not in _AT_FIRST and not (new.reason == Reason.NOT_MANAGED and not new.message)
    # What is on its way out, and what is lost, are both Gone.
    return (old.status, old.reason) != (new.status, new.reason) or (
        new.reason == Reason.GONE and old.message != new.message
    )


def _end(failure: Failure) -> Note:
    text = f"{failure.pod_name} ended{with_code(failure.exit_code)} ({failure.action}): {failure.message}"
    return Note(text, warning=failure.action not in ("Ignore", "RestartRoleAndIgnoreBackoff"))


def _sentence(condition: Condition) -> Note:
    text = f"{condition.type}={condition.status} ({condition.reason})"
    return Note(f"{text}: {condition.message}" if condition.message else text, warning=condition.reason in _TROUBLE)

"""Events: what changed between two statuses, a sentence each."""

from __future__ import annotations

from typing import Final

from rljob.api.conditions import Reason
from rljob.api.status import Condition, RLJobStatus

_AT_FIRST: Final = frozenset(
    {
        Reason.PODS_PENDING,
        Reason.STARTING,
        Reason.WARMING_UP,
        Reason.SCALING_DISABLED,
        Reason.DESIRED_WITHIN_RANGE,
        Reason.MISSING,
    }
)
"""Why conditions are as they are of every job that has just begun: nine events that tell nothing."""


def between(before: RLJobStatus, after: RLJobStatus) -> tuple[str, ...]:
    """New failures, changed conditions, and a changed number of actors."""
    if after is before:
        return ()
    found = [
        f"{f.pod_name} ended with exit code {f.exit_code} ({f.action}): {f.message}"
        for f in after.failures
        if f not in before.failures
    ]
    known = {c.type: c for c in before.conditions}
    found += [_sentence(c) for c in after.conditions if _differs(known.get(c.type), c)]
    was, now = before.autoscaling.desired_replicas, after.autoscaling.desired_replicas
    if was != now and before.start_time is not None:
        found.append(f"actors {was} -> {now}: {after.autoscaling.last_decision}")
    return tuple(found)


def _differs(old: Condition | None, new: Condition) -> bool:
    if old is None:
        return new.reason not in _AT_FIRST and not (new.reason == Reason.NOT_MANAGED and not new.message)
    return (old.status, old.reason) != (new.status, new.reason)


def _sentence(condition: Condition) -> str:
    text = f"{condition.type}={condition.status} ({condition.reason})"
    return f"{text}: {condition.message}" if condition.message else text

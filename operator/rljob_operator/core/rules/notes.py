"""Events: what changed between two statuses, a sentence each."""

from __future__ import annotations

from rljob.api.status import Condition, RLJobStatus


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
    return old is None or (old.status, old.reason) != (new.status, new.reason)


def _sentence(condition: Condition) -> str:
    text = f"{condition.type}={condition.status} ({condition.reason})"
    return f"{text}: {condition.message}" if condition.message else text

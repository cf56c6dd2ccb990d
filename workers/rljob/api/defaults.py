"""Defaults that depend on the algorithm; all others stand beside their fields."""

from __future__ import annotations

from typing import Any

from rljob.api.queue import QueueSpec

IMPALA_GUARD_PERCENT = 80
"""Default of the autoscaler's lag guard, in percent of queue.maxPolicyLagUpdates: it must act before unrolls are
discarded, for their lag is then seen no more."""
_QUEUE_LAG_UPDATES: int = QueueSpec.model_fields["max_policy_lag_updates"].default


def with_algorithm_defaults(document: dict[str, Any]) -> dict[str, Any]:
    """Fill ``autoscaling.signal`` and ``autoscaling.guards.maxPolicyLagUpdates`` of an IMPALA job where they are not given.

    Works on a document that has not been checked yet: what has another shape than expected is left for the check.
    """
    spec = document.get("spec")
    if not isinstance(spec, dict) or not isinstance(spec.get("algorithm"), dict):
        return document
    if spec["algorithm"].get("name") != "IMPALA":
        return document
    scaling = spec.get("autoscaling", {})
    guards = scaling.get("guards", {}) if isinstance(scaling, dict) else None
    if not isinstance(scaling, dict) or not isinstance(guards, dict):
        return document
    queue = spec.get("queue")
    lag = queue.get("maxPolicyLagUpdates", _QUEUE_LAG_UPDATES) if isinstance(queue, dict) else _QUEUE_LAG_UPDATES
    usable = isinstance(lag, int) and not isinstance(lag, bool) and 1 <= lag <= 10**9
    guard = max(1, (lag if usable else _QUEUE_LAG_UPDATES) * IMPALA_GUARD_PERCENT // 100)
    filled = {
        "signal": "LearnerQueueDepth",
        **scaling,
        "guards": {"maxPolicyLagUpdates": guard, **guards},
    }
    return {**document, "spec": {**spec, "autoscaling": filled}}

"""What to do when the figures stay away: KEDA's words, with the meaning they have there."""

from __future__ import annotations

from rljob.api.autoscaling import AutoscalingSpec


def fallback(spec: AutoscalingSpec, current: int, missing_seconds: float) -> int | None:
    """The number of actors to fall back to; None as long as the present number is held."""
    missing = spec.missing_metrics
    if missing.action != "Fallback" or missing_seconds < missing.fallback.after_seconds:
        return None
    if missing.fallback.behavior == "CurrentReplicasIfHigher":
        return max(current, missing.fallback.replicas)
    if missing.fallback.behavior == "CurrentReplicasIfLower":
        return min(current, missing.fallback.replicas)
    return missing.fallback.replicas

"""Which figures are valid, by range and age, and what is done while there are none, in KEDA's terms.
`rljob.api.learner_status` reads them; missing is never zero."""

from __future__ import annotations

import math
from typing import Final

from rljob.api.autoscaling import AutoscalingSpec

from rljob_operator.core.autoscaling.model import ScalingSample

_CLOCK_SLACK_SECONDS: Final = 1.0
"""How far ahead of the clock a sample's time may be (rounding of times in documents)."""

_MOST_PER_SECOND: Final = 1e9
"""Above any real rate, queue or lag: a larger figure was not measured."""


def fault(sample: ScalingSample | None, now_seconds: float, stale_after_seconds: float) -> str:
    """Why the sample counts as missing, as a clause; empty if it may be used."""
    if sample is None:
        return "the learner reports no figures"
    ranges = {
        "wait_fraction": (sample.wait_fraction, 0.0, 1.0),
        "blocked_fraction": (sample.blocked_fraction, 0.0, 1.0),
        "consumption_per_second": (sample.consumption_per_second, 0.0, _MOST_PER_SECOND),
        "production_per_second": (sample.production_per_second, 0.0, _MOST_PER_SECOND),
        "queue_depth_batches": (sample.depth_batches, 0.0, _MOST_PER_SECOND),
        "queue_bound_batches": (sample.bound_batches, 1e-9, _MOST_PER_SECOND),
        "items_per_batch": (sample.items_per_batch, 1e-9, _MOST_PER_SECOND),
        "policy_lag_updates_p95": (sample.policy_lag_updates_p95 or 0.0, 0.0, _MOST_PER_SECOND),
    }
    for name, (value, low, high) in ranges.items():
        if not (math.isfinite(value) and low <= value <= high):
            return f"{name} is {value:g}, outside {low:g} to {high:g}"
    age = now_seconds - sample.taken_seconds
    if not math.isfinite(age):
        return f"the sample's time is {sample.taken_seconds:g}"
    if age > stale_after_seconds:
        return f"the figures are {age:.0f} s old, more than staleAfterSeconds ({stale_after_seconds:g})"
    if age < -_CLOCK_SLACK_SECONDS:
        return f"the figures are {-age:.0f} s ahead of the clock"
    return ""


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

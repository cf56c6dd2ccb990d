"""Which figures are valid, by range and age. `rljob.api.learner_status` reads them; missing is never zero."""

import math
from typing import Final

from rljob_operator.core.autoscaling.model import ScalingSample

STALE_AFTER_SECONDS: Final = 45.0
"""Older figures count as missing: three decisions, and several of the learner's reports."""

_CLOCK_SLACK_SECONDS: Final = 1.0
"""How far ahead of the clock a sample's time may be (rounding of times in documents)."""

_MOST_PER_SECOND: Final = 1e9
"""Above any real rate, queue or lag: a larger figure was not measured."""


def fault(sample: ScalingSample | None, now_seconds: float) -> str:
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
    if age > STALE_AFTER_SECONDS:
        return f"the figures are {age:.0f} s old, more than {STALE_AFTER_SECONDS:g}"
    if age < -_CLOCK_SLACK_SECONDS:
        return f"the figures are {-age:.0f} s ahead of the clock"
    return ""

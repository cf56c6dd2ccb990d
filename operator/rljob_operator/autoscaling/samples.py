"""Which figures may be believed: read from the learner's status document, checked for range and age. Missing is never zero."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from rljob_operator.autoscaling.model import ScalingSample

_CLOCK_SLACK_SECONDS: Final = 1.0
"""How far ahead of the clock a sample's time may be (rounding of times in documents)."""

_MOST_PER_SECOND: Final = 1e9
"""Above any real rate, queue or lag: whatever says more has not measured it."""


def read_sample(
    document: Mapping[str, Any],
    *,
    taken_seconds: float,
    items_per_batch: float,
    samples_per_insert: float | None = None,
    learner_advancing: bool,
) -> ScalingSample | None:
    """The sample in a learner's ``/status`` document; None if a figure is absent or no number.

    Args:
        document: whatever the learner answered, parsed.
        taken_seconds: when it answered, on the controller's clock.
        items_per_batch: items one batch uses up (see `ScalingSample`).
        samples_per_insert: for Ape-X, whose ``consumption_per_second`` counts sampled transitions; None for IMPALA.
        learner_advancing: whether ``updates`` has grown since the document before.
    """
    names = (
        "wait_fraction",
        "blocked_fraction",
        "consumption_per_second",
        "production_per_second",
        "queue_depth_batches",
        "queue_bound_batches",
    )
    figures = [document.get(name) for name in names]
    lag = document.get("policy_lag_updates_p95")
    if not all(_is_number(figure) for figure in figures) or not (lag is None or _is_number(lag)):
        return None
    wait, blocked, consumption, production, depth, bound = (float(figure) for figure in figures if figure is not None)
    return ScalingSample(
        taken_seconds=taken_seconds,
        wait_fraction=wait,
        blocked_fraction=blocked,
        consumption_per_second=consumption / samples_per_insert if samples_per_insert else consumption,
        production_per_second=production,
        depth_batches=depth,
        bound_batches=bound,
        items_per_batch=items_per_batch,
        policy_lag_updates_p95=None if lag is None else float(lag),
        learner_advancing=learner_advancing,
    )


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


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

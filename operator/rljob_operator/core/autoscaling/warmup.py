"""When nothing can be decided: without valid figures, and too early after a (re)start of the learner, the job or the controller,
or after a jump of the clock. `rljob.api.learner_status` reads figures; missing is never zero.
"""

import math
from dataclasses import replace
from typing import Final

from rljob_operator.core.autoscaling.law import RATE_WINDOW_SECONDS
from rljob_operator.core.autoscaling.model import AutoscalingMemory, ScalingSample, Supply

_LONGEST_GAP_SECONDS: Final = 60.0
"""Two calls further apart than this mean that the controller did not watch in between."""

_SAME_START_SECONDS: Final = 2.0
"""Start times of one process, computed twice, differ by less."""


def on_this_clock(memory: AutoscalingMemory, now_seconds: float) -> AutoscalingMemory:
    """The memory with its times moved to where a clock that jumped would put them, and the call noted.

    A clock that went back, and a gap, be it a jump of the clock or a controller that was away, count as no time at all. After
    a gap the watch and the warm-up begin anew.
    """
    seen = memory.seen_seconds
    if seen is None:
        return replace(memory, seen_seconds=now_seconds, looked_seconds=now_seconds, watching_since_seconds=now_seconds)
    gap = now_seconds - seen
    if gap < 0:
        return replace(memory.shifted(gap), looked_seconds=now_seconds)
    if gap > _LONGEST_GAP_SECONDS:
        memory = memory.shifted(gap)
        return replace(
            memory, looked_seconds=now_seconds, watching_since_seconds=now_seconds, advancing_since_seconds=None
        )
    return replace(memory, seen_seconds=now_seconds, looked_seconds=seen)


def attended(
    memory: AutoscalingMemory, sample: ScalingSample | None, supply: Supply, now_seconds: float
) -> AutoscalingMemory:
    """Note since when the present learner has been seen to advance: at the earliest since the call before.

    Args:
        memory: of the autoscaler.
        sample: the figures, None if they count as missing.
        supply: knows when the learner started.
        now_seconds: Unix time.
    """
    started, known = supply.learner_started_seconds, memory.learner_started_seconds
    if started is None:
        return replace(memory, advancing_since_seconds=None)
    if known is None or abs(started - known) > _SAME_START_SECONDS:
        memory = replace(
            memory,
            learner_started_seconds=started,
            advancing_since_seconds=None,
            rates=replace(memory.rates, taken_seconds=None),
        )
    if memory.advancing_since_seconds is None and sample is not None and sample.learner_advancing:
        before = now_seconds if memory.looked_seconds is None else memory.looked_seconds
        return replace(memory, advancing_since_seconds=min(now_seconds, max(before, started)))
    return memory


def warming_up(memory: AutoscalingMemory, now_seconds: float) -> str:
    """Why it is too early to decide, as a clause; empty once the learner has advanced for one whole rate window."""
    since = memory.advancing_since_seconds
    if since is None:
        return "warming up: the learner has not advanced yet"
    if now_seconds - since < RATE_WINDOW_SECONDS:
        return f"warming up: the learner advances, the first decision comes after {RATE_WINDOW_SECONDS:g} s of it"
    return ""


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

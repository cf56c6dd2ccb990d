"""Does the run get slower while the replay fills? Then memory, not computation, is in its way.

Before the ring is full every stored transition adds memory; a step rate that falls with the fill, all else equal, means
that the machine swaps, or that something does more work the more is stored. Once the ring is full nothing can be told.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import Any, Final

from rljob.telemetry.figures import number

MIN_FILL_RANGE: Final = 0.2
"""The replay must have filled by at least this share of its capacity in the records at hand."""

LOSS: Final = 0.25
"""A rate that falls by more than this over a whole filling, by the fitted line, is reported."""

_MIN_RECORDS = 12
_MAX_RECORDS = 120


@dataclass(frozen=True, slots=True)
class FillTrend:
    """``loss``: the share of the step rate lost from an empty to a full replay; ``sentence``: what to make of it."""

    loss: float
    sentence: str


def fill_trend(points: Sequence[Mapping[str, Any]]) -> FillTrend | None:
    """Judges the records made in state Training while ``replay/fill`` still grew.

    The slope is the median of the slopes between all pairs of records (Theil-Sen), and it counts only if both halves of
    the filling show it, too: a single slow phase is no trend.

    Returns:
        None when there is no such trend, or too little to tell.
    """
    pairs = [
        (fill, rate)
        for point in points
        if point.get("state", "Training") == "Training"
        and (fill := number(point.get("replay/fill"))) is not None
        and (rate := number(point.get("steps_per_second"))) is not None
        and 0 <= fill < 0.999
        and rate > 0
    ]
    pairs = pairs[:: max(1, len(pairs) // _MAX_RECORDS)]
    if len(pairs) < _MIN_RECORDS or pairs[-1][0] - pairs[0][0] < MIN_FILL_RANGE:
        return None
    half = len(pairs) // 2
    losses = [_loss(pairs), _loss(pairs[:half]), _loss(pairs[half:])]
    if losses[0] < LOSS or min(losses) < LOSS / 2:
        return None
    return FillTrend(
        losses[0],
        f"Agent steps a second fall with the fill of the replay, by {min(1.0, losses[0]) * 100:.0f} % from empty to "
        "full: the machine is short of memory; lower replay.capacity, or give the replay more.",
    )


def _loss(pairs: Sequence[tuple[float, float]]) -> float:
    """The fitted fall of the rate over a fill of 0 to 1, relative to the fitted rate at 0."""
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(pairs, 2) if b[0] > a[0]]
    if not slopes:
        return 0.0
    slope = median(slopes)
    start = median(rate - slope * fill for fill, rate in pairs)
    return -slope / start if start > 0 else 0.0

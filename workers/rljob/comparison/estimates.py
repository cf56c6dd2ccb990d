"""What the scores of a few runs are worth: interquartile mean, mean, shares and probability of improvement, with intervals.

The definitions are those of Agarwal et al., "Deep RL at the edge of the statistical precipice" (2021), and their library
rliable, for one environment. Intervals are those of a percentile bootstrap, stratified by group: each group's runs are drawn
again from that group alone. Random numbers come from a generator of our own with a fixed seed, so that the same scores, in
whatever order they are given, always have the same intervals.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CONFIDENCE_PERCENT: Final = 95
RESAMPLES: Final = 10_000
"""Draws behind an interval of a figure."""
CURVE_RESAMPLES: Final = 2_000
"""Draws behind the band of a curve, which has an interval at each of its points."""
_SEED: Final = 20210831


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with the ends of its interval; these are None where a single run tells nothing of the spread."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Band:
    """A figure and the ends of its interval at each point of a curve, f64[points] each."""

    value: Floats
    low: Floats
    high: Floats


def iqm(scores: Sequence[float] | Floats) -> float:
    """The interquartile mean: the mean without the lowest and the highest quarter of the scores, each rounded down to whole
    scores, so that of fewer than four it is the mean."""
    return float(np.sort(np.asarray(scores, float))[_middle(len(scores))].mean())


def iqm_estimate(scores: Sequence[float]) -> Estimate:
    """The interquartile mean of a group's scores."""
    rows = _drawn(len(scores))[:, _middle(len(scores))]
    return _estimate(iqm(scores), np.sort(scores)[rows].mean(axis=1), len(scores))


def mean_estimate(scores: Sequence[float]) -> Estimate:
    """The mean of a group's scores."""
    ordered = np.sort(scores)
    return _estimate(float(ordered.mean()), ordered[_drawn(len(scores))].mean(axis=1), len(scores))


def improvement(better: Sequence[float], than: Sequence[float]) -> Estimate:
    """The probability that a run of one group scores higher than a run of another; equal scores count half."""
    x, y = np.sort(better), np.sort(than)
    wins = (x[:, None] > y) + (x[:, None] == y) / 2
    draws = ((_times_drawn(len(x), stream=0) @ wins) * _times_drawn(len(y), stream=1)).sum(axis=1) / wins.size
    return _estimate(float(wins.mean()), draws, min(wins.shape))


def iqm_band(values: Floats) -> Band:
    """The interquartile mean over the runs of a group at each point of their curves. values: f64[runs, points]."""
    ordered, rows = np.sort(values, axis=0).T, _drawn(len(values), CURVE_RESAMPLES)[:, _middle(len(values))]
    ends = [_interval(scores[rows].mean(axis=1)) for scores in ordered]
    return Band(ordered[:, _middle(len(values))].mean(axis=1), *np.array(ends).T)


def share_band(values: Sequence[float] | Floats, at_most: Floats) -> Band:
    """The share of a group's runs whose value is at most each of ``at_most``, f64[points]. An infinite value never is."""
    ordered = np.sort(values)
    reached = ordered[:, None] <= at_most
    draws = _times_drawn(len(ordered), CURVE_RESAMPLES) @ reached / len(ordered)
    return Band(reached.mean(axis=0), *_interval(draws))


def _middle(count: int) -> slice:
    return slice(count // 4, count - count // 4)


def _drawn(count: int, resamples: int = RESAMPLES, stream: int = 0) -> NDArray[np.int64]:
    """Which of ``count`` ordered scores each resample has, in their order: i64[resamples, count]."""
    generator = np.random.Generator(np.random.PCG64([_SEED, stream]))
    return np.sort(generator.integers(count, size=(resamples, count)), axis=1)


def _times_drawn(count: int, resamples: int = RESAMPLES, stream: int = 0) -> Floats:
    """How often each of ``count`` ordered scores is in each resample: f64[resamples, count]. Whole numbers, so that sums of
    their products with halves are exact, in whatever order a processor adds them."""
    times = np.zeros((resamples, count))
    np.add.at(times, (np.arange(resamples)[:, None], _drawn(count, resamples, stream)), 1.0)
    return times


def _estimate(value: float, draws: Floats, runs: int) -> Estimate:
    low, high = _interval(draws)
    return Estimate(value, float(low), float(high)) if runs > 1 else Estimate(value)


def _interval(draws: Floats) -> Any:
    """The ends of the interval of values drawn along the first axis."""
    outside = (100 - CONFIDENCE_PERCENT) / 2
    return np.percentile(draws, [outside, 100 - outside], axis=0)

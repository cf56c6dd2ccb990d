"""Statistics of few runs, against plain definitions and against numbers that rliable gave for the same scores."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st
from rljob.comparison.estimates import (
    Estimate,
    improvement,
    iqm,
    iqm_band,
    iqm_estimate,
    mean_estimate,
    share_band,
)

A = [18.3, 17.25, 19.0, -3.5, 18.75, 20.1, 4.0, 18.3, 19.6, 17.9]
B = [18.3, 16.0, -20.5, 12.75, 18.9, 15.5, 18.3]
C = [487.2, 500.0, 500.0]

SCORES = st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=25)


def ends(estimate: Estimate) -> tuple[float | None, float | None]:
    return estimate.low, estimate.high


@pytest.mark.parametrize(
    ("scores", "of_rliable"), [(A, 18.25), (B, 16.169999999999998), (C, 495.73333333333335)], ids="ABC"
)
def test_the_interquartile_mean_is_that_of_rliable(scores: list[float], of_rliable: float) -> None:
    """The numbers are those of rliable 1.2.0 with SciPy 1.17.1: ``metrics.aggregate_iqm(np.array(scores)[:, None])``."""
    assert iqm(scores) == pytest.approx(of_rliable, abs=1e-9)


@pytest.mark.parametrize(
    ("better", "than", "of_rliable"),
    [(A, B, 0.6714285714285714), (B, A, 0.32857142857142857), (A, C, 0.0), (B, C, 0.0)],
)
def test_the_probability_of_improvement_is_that_of_rliable(
    better: list[float], than: list[float], of_rliable: float
) -> None:
    """The numbers are those of its ``metrics.probability_of_improvement``, a Mann-Whitney U over the number of pairs. (For two
    groups with the same scores in the same order rliable gives a half over that number, where its definition gives a half.)"""
    assert improvement(better, than).value == pytest.approx(of_rliable, abs=1e-9)


@given(SCORES)
def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end(scores: list[float]) -> None:
    out = int(0.25 * len(scores))  # as scipy.stats.trim_mean counts, which rliable takes
    kept = sorted(scores)[out : len(scores) - out]
    assert iqm(scores) == pytest.approx(math.fsum(kept) / len(kept), abs=1e-9)


@given(SCORES, SCORES)
def test_the_probability_of_improvement_counts_pairs(better: list[float], than: list[float]) -> None:
    pairs = [1.0 if x > y else 0.5 if x == y else 0.0 for x in better for y in than]
    found = improvement(better, than)
    assert found.value == pytest.approx(sum(pairs) / len(pairs), abs=1e-9)
    assert improvement(than, better).value == pytest.approx(1 - found.value, abs=1e-9)


def test_an_interval_is_that_of_a_bootstrap_drawn_plainly() -> None:
    """With other random numbers, so that both agree as far as so many draws do: 0.05 of a spread of about 3."""
    random, draws = np.random.default_rng(7), 20_000
    of_a, of_b = (random.choice(scores, (draws, len(scores))) for scores in (A, B))
    wins = (of_a[:, :, None] > of_b[:, None]) + (of_a[:, :, None] == of_b[:, None]) / 2
    for estimate, drawn, within in (
        (iqm_estimate(A), np.sort(of_a)[:, 2:-2].mean(1), 0.2),  # a quarter of ten scores is two of them
        (mean_estimate(A), of_a.mean(1), 0.2),
        (improvement(A, B), wins.mean((1, 2)), 0.02),
    ):
        assert ends(estimate) == pytest.approx(np.sort(drawn)[[500, 19_500]].tolist(), abs=within)


def test_the_order_of_the_runs_changes_nothing_to_the_last_bit() -> None:
    again = A[::-1]
    assert (iqm_estimate(again), mean_estimate(again)) == (iqm_estimate(A), mean_estimate(A))
    assert improvement(again, B) == improvement(A, B[::-1])


def test_groups_of_one_size_are_drawn_independently() -> None:
    """Were two groups with the same scores drawn alike, each draw would beat the other by exactly as much as it loses."""
    low, high = ends(improvement(A, A))
    assert low < 0.5 < high


def test_a_single_run_has_no_interval() -> None:
    assert iqm_estimate([3.0]) == mean_estimate([3.0]) == Estimate(3.0)
    assert improvement([3.0], A) == Estimate(0.1)


def test_scores_that_are_equal_have_an_interval_without_width() -> None:
    assert ends(iqm_estimate([500.0] * 8)) == (500.0, 500.0)


def test_a_band_has_an_interval_at_each_point() -> None:
    band = iqm_band(np.array(A)[:, None] + np.array([0.0, 100.0]))
    assert band.value.tolist() == pytest.approx([18.25, 118.25])
    for found, end in zip((band.low, band.high), ends(iqm_estimate(A)), strict=True):
        assert found.tolist() == pytest.approx([end, end + 100], abs=1.0)


def test_shares_rise_from_nothing_to_those_that_ever_reach_it() -> None:
    band = share_band([10.0, 20.0, math.inf, math.inf], np.array([5.0, 10.0, 15.0, 20.0, 1e9]))
    assert band.value.tolist() == [0.0, 0.25, 0.25, 0.5, 0.5]
    assert all(low <= value <= high for low, value, high in zip(band.low, band.value, band.high, strict=True))
    assert all(before <= after for before, after in pairwise(band.high))

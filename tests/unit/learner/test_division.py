"""A batch divided among shards: the draws in proportion to mass, what they cost by who is ahead."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from rljob.learner.assembly import charges_by_error, draws_by_mass

masses = st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=20)


@given(masses=masses, draws=st.integers(0, 600), offset=st.floats(0, 1, exclude_max=True))
def test_every_draw_falls_to_a_shard_and_none_differs_by_one_from_its_part(
    masses: list[float], draws: int, offset: float
) -> None:
    counts, shares = draws_by_mass(masses, draws, offset)
    assert counts.sum() == draws
    assert shares.sum() == pytest.approx(1.0)
    np.testing.assert_array_less(np.abs(counts - draws * shares), 1.0 + 1e-6)


@pytest.mark.parametrize("masses", [[1.0, 1.0], [0.1, 3.0, 7.0], [1e-3, 1e3], [5.0] * 16, [0.0, 2.0, 0.0]])
def test_on_average_each_shard_is_drawn_from_by_its_mass(masses: list[float]) -> None:
    offsets = (np.arange(10_000) + 0.5) / 10_000
    mean = np.mean([draws_by_mass(masses, 33, offset)[0] for offset in offsets], axis=0)
    np.testing.assert_allclose(mean, 33 * np.array(masses) / sum(masses), atol=2e-3)


@pytest.mark.parametrize("masses", [[0.0, 0.0], [float("nan"), 1.0], [-1.0, 2.0], [float("inf"), 1.0]])
def test_masses_that_are_none_are_refused(masses: list[float]) -> None:
    with pytest.raises(ValueError, match="priority masses"):
        draws_by_mass(masses, 8, 0.5)


@given(errors=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), amount=st.integers(0, 600))
def test_what_a_batch_costs_is_paid_by_those_ahead_and_leaves_them_level(errors: list[float], amount: int) -> None:
    charges = charges_by_error(errors, amount)
    assert charges.sum() == amount
    assert charges.min() >= 0
    left = np.array(errors) - charges
    payers = charges > 1
    if payers.any():
        assert np.ptp(left[payers]) <= 2.0 + 1e-6, "who pays ends on one level"
        assert left[~payers].max(initial=-np.inf) <= left[payers].min() + 3.0, "who pays nothing was not ahead of it"


def test_level_shards_pay_alike_and_one_that_lags_pays_nothing() -> None:
    assert charges_by_error([10.0] * 4, 32).tolist() == [8] * 4
    assert charges_by_error([100.0, 100.0, -500.0], 32).tolist() == [16, 16, 0]
    assert charges_by_error([100.0, 90.0], 30).tolist() == [20, 10]

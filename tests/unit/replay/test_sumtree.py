"""The sum-tree against a plain array of weights and numpy's cumulative sum."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from rljob.replay.selectors import Prioritized, SumTree


@pytest.mark.parametrize("capacity", [1, 2, 3, 63, 64, 65, 1000])
def test_sums_stay_exact_over_many_random_operations(capacity: int) -> None:
    rng = np.random.default_rng(capacity)
    tree, plain, operations = SumTree(capacity), np.zeros(capacity), 0
    while operations < 100_000:
        if rng.random() < 0.5:
            indices = rng.integers(0, capacity, int(rng.integers(1, 200)))
            weights = rng.exponential(size=len(indices)) * 10.0 ** rng.integers(-6, 6)
            tree.update(indices, weights)
            plain[indices] = weights
        else:
            start = int(rng.integers(capacity))
            weights = rng.exponential(size=int(rng.integers(1, capacity - start + 1)))
            weights[rng.random(len(weights)) < 0.3] = 0.0
            tree.update_range(start, weights)
            plain[start : start + len(weights)] = weights
        operations += len(weights)
    np.testing.assert_array_equal(tree.leaves, plain)
    assert tree.total == pytest.approx(plain.sum(), rel=1e-9)
    assert tree.drift() < 1e-12


@given(
    weights=st.lists(st.one_of(st.just(0.0), st.floats(1e-9, 1e9)), min_size=1, max_size=70).filter(any),
    fractions=st.lists(st.floats(-0.5, 1.5), min_size=1, max_size=50),
)
@settings(max_examples=300)
def test_find_agrees_with_a_linear_scan_and_never_returns_an_empty_leaf(
    weights: list[float], fractions: list[float]
) -> None:
    tree = SumTree(len(weights))
    tree.update_range(0, np.array(weights))
    prefix = np.array(fractions) * tree.total
    found, weight = tree.find(prefix)
    cumulative = np.cumsum(weights)
    assert np.isin(found, np.flatnonzero(weights)).all()
    np.testing.assert_array_equal(weight, np.array(weights)[found])
    for value, index in zip(np.clip(prefix, 0, tree.total), found, strict=True):
        slack = 1e-9 * tree.total
        assert cumulative[index] >= value - slack
        assert cumulative[index] - weights[index] <= value + slack


@pytest.mark.parametrize("stored", [255, 256])
def test_sampled_frequencies(stored: int) -> None:
    """Full to capacity and one short of it; 200,000 draws. Stratified draws vary less than independent ones."""
    rng = np.random.default_rng(5)
    tree, weights = SumTree(256), rng.gamma(0.5, size=stored) + 0.01
    tree.update_range(0, weights)
    assert_as_often(np.concatenate([tree.sample(1000, rng)[0] for _ in range(200)]), weights / weights.sum())


def assert_as_often(drawn: np.ndarray, shares: np.ndarray) -> None:
    """That the first entries were drawn as often as they should, and no others, by their sum of chi squares."""
    counts, expected, stored = np.bincount(drawn, minlength=256), shares * len(drawn), len(shares)
    assert (counts[stored:] == 0).all()
    assert ((counts[:stored] - expected) ** 2 / expected).sum() < stored + 4 * np.sqrt(2 * stored)


def test_with_exponent_0_draws_are_uniform_whatever_the_priorities() -> None:
    rng = np.random.default_rng(5)
    selector, stored = Prioritized(256, 0.0), 200
    selector.assign(0, rng.gamma(0.5, size=stored) + 0.01)
    selector.update(np.arange(50), 1e6 * rng.random(50))
    ids, chances = (
        np.concatenate(each) for each in zip(*(selector.sample(1000, rng) for _ in range(200)), strict=True)
    )
    np.testing.assert_allclose(chances, 1 / stored)
    assert_as_often(ids, np.full(stored, 1 / stored))


def test_another_exponent_weighs_what_is_stored_as_if_it_had_always_been_it() -> None:
    priorities = np.random.default_rng(5).gamma(0.5, size=200) + 0.01
    changed, others = Prioritized(256, 0.6), {exponent: Prioritized(256, exponent) for exponent in (0.3, 1.0, 0.0)}
    changed.assign(0, priorities)
    for exponent, other in others.items():
        other.assign(0, priorities)
        changed.go_by(exponent)
        np.testing.assert_allclose(changed.tree.leaves[:256], other.tree.leaves[:256], rtol=1e-9)
    for exponent in (5e-324, 1.0):
        changed.go_by(exponent)
        assert np.isfinite(changed.tree.total)


def test_each_stratum_of_each_batch_is_hit_once() -> None:
    tree = SumTree(100)
    tree.update_range(0, np.ones(100))
    found, _ = tree.sample([100, 0, 50], np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(found[:100]), np.arange(100))
    np.testing.assert_array_equal(np.sort(found[100:] // 2), np.arange(50))


def test_bad_input_changes_nothing() -> None:
    tree = SumTree(10)
    tree.update_range(0, np.ones(10))
    for indices, weights in (([10], [1.0]), ([-1], [1.0]), ([0], [np.nan]), ([0], [-1.0]), ([0], [np.inf])):
        with pytest.raises((IndexError, ValueError)):
            tree.update(np.array(indices), np.array(weights))
    with pytest.raises(IndexError):
        tree.update_range(8, np.ones(3))
    assert tree.total == 10.0
    with pytest.raises(ValueError, match="without weight"):
        SumTree(4).sample(1, np.random.default_rng(0))

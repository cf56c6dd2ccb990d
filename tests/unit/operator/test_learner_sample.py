"""The learner's `/status` in every state of disrepair: what is wrong is missing, never zero."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rljob_operator.core.learner_sample import BadSample, parse_sample, status_document

GOOD: dict[str, Any] = {
    "updates": 10,
    "raw_frames_total": 4000,
    "mean_return": -20.5,
    "learner_wait_fraction": 0.25,
    "actors_blocked_fraction": 0.5,
    "consumption_per_second": 100.0,
    "production_per_second": 120.0,
    "queue_depth_batches": 3,
    "queue_bound_batches": 64,
    "policy_lag_updates_p95": 30.0,
    "evaluations": [{"mean": 1.5, "standard_error": 0.1, "episodes": 20, "finished": True}],
    "actors": [{"name": "actor-0", "policy_version": 7}, {"name": "actor-1", "policy_version": 9}],
}
FIGURES = {
    "raw_frames_total": "raw_frames_total",
    "mean_return": "mean_return",
    "learner_wait_fraction": "wait_fraction",
    "actors_blocked_fraction": "blocked_fraction",
    "consumption_per_second": "consumption_per_second",
    "production_per_second": "production_per_second",
    "queue_depth_batches": "depth_batches",
    "queue_bound_batches": "bound_batches",
    "policy_lag_updates_p95": "policy_lag_updates_p95",
}


def test_a_good_document() -> None:
    sample = parse_sample(status_document(json.dumps(GOOD)), 5.0)
    assert (sample.taken_seconds, sample.updates, sample.raw_frames_total) == (5.0, 10, 4000)
    assert (sample.wait_fraction, sample.blocked_fraction) == (0.25, 0.5)
    assert (sample.depth_batches, sample.bound_batches) == (3.0, 64.0)
    assert sample.evaluations[0].mean == 1.5
    assert sample.lags == {"actor-0": 2.0, "actor-1": 0.0}


@pytest.mark.parametrize("document", ["", "not json", "[]", "3", "null", b"\xff\xfe", "{", "[" * 100_000, {}])
def test_what_is_no_status_at_all(document: Any) -> None:
    with pytest.raises(BadSample):
        parse_sample(document if isinstance(document, dict) else status_document(document), 0.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1, "10", True, [], 10**400, 1e300])
def test_without_believable_updates_there_is_no_sample(bad: Any) -> None:
    with pytest.raises(BadSample, match="updates"):
        parse_sample(GOOD | {"updates": bad}, 0.0)


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("bad", [math.nan, -math.inf, "0.5", False, {}, 10**400, 1e300, -1e300])
def test_a_bad_figure_is_missing_and_the_others_stay(name: str, bad: Any) -> None:
    sample = parse_sample(GOOD | {name: bad}, 0.0)
    assert getattr(sample, FIGURES[name]) is None
    for other, attribute in FIGURES.items():
        assert other == name or getattr(sample, attribute) is not None


def test_fractions_are_fractions() -> None:
    assert parse_sample(GOOD | {"learner_wait_fraction": 1.01}, 0.0).wait_fraction is None


def test_an_absent_figure_is_missing() -> None:
    sample = parse_sample({"updates": 1, "queue_depth_batches": None}, 0.0)
    assert (sample.depth_batches, sample.raw_frames_total) == (None, None)


def test_bad_evaluations_are_left_out() -> None:
    evaluations = [{"mean": math.nan}, 7, {"mean": "high"}, {"mean": 2}, {"mean": 3, "finished": False}]
    sample = parse_sample(GOOD | {"evaluations": evaluations}, 0.0)
    assert [(e.mean, e.finished) for e in sample.evaluations] == [(2.0, True), (3.0, False)]
    assert parse_sample(GOOD | {"evaluations": "none"}, 0.0).evaluations == ()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(sorted(GOOD)), JSON))
def test_whatever_comes_is_a_sample_in_range_or_a_refusal(changes: dict[str, Any]) -> None:
    try:
        sample = parse_sample(GOOD | changes, 0.0)
    except BadSample:
        return
    for attribute in FIGURES.values():
        value = getattr(sample, attribute)
        assert value is None or (math.isfinite(value) and abs(value) <= 1e15)
        assert value is None or attribute == "mean_return" or value >= 0
    assert all(math.isfinite(e.mean) for e in sample.evaluations)

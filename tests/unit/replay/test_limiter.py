"""The limiter against a brute-force simulator of both sides."""

import pytest
from hypothesis import given, settings, strategies as st
from rljob.replay.limiter import LimiterConfig, SamplesPerInsertLimiter


@given(
    ratio=st.floats(0.01, 64),
    min_size=st.integers(1, 500),
    slack=st.floats(1.0, 3.0),
    insert_step=st.integers(1, 60),
    sample_step=st.integers(1, 600),
    choices=st.lists(st.booleans(), min_size=1, max_size=200),
)
@settings(max_examples=200)
def test_no_accepted_configuration_deadlocks_or_leaves_its_bounds(
    ratio: float, min_size: int, slack: float, insert_step: int, sample_step: int, choices: list[bool]
) -> None:
    smallest = max(0.5 * (insert_step * ratio + sample_step), 2 * max(1.0, ratio))
    config = LimiterConfig(ratio, min_size, smallest * slack, insert_step, sample_step)
    limiter = SamplesPerInsertLimiter(config)
    inserted = sampled = 0
    for prefer_insert in choices * 3:
        may_insert, may_sample = limiter.can_insert(insert_step), limiter.can_sample(sample_step)
        assert may_insert or may_sample, "both sides wait"
        assert limiter.error == pytest.approx(inserted * ratio - sampled - min_size * ratio, abs=1e-6)
        if may_insert and (prefer_insert or not may_sample):
            inserted += insert_step
            limiter.insert(insert_step)
        else:
            assert inserted >= min_size
            sampled += sample_step
            limiter.sample(sample_step)
        bound = max(config.error_buffer, insert_step * ratio)  # the insert that passes min_size may overshoot
        error = inserted * ratio - sampled - min_size * ratio
        assert error <= bound + 1e-6
        assert not sampled or error >= -config.error_buffer - 1e-6


def test_a_buffer_that_could_deadlock_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match=r"training would stop for ever; it must be at\s+least 456"):
        LimiterConfig(8.0, 1000, 455.0, insert_step=50, sample_step=512)
    LimiterConfig(8.0, 1000, 456.0, insert_step=50, sample_step=512)


def test_no_ratio_means_no_limit_after_min_size() -> None:
    limiter = SamplesPerInsertLimiter(LimiterConfig(0.0, 10, 0.0))
    assert limiter.blocked == "samples"
    limiter.insert(10)
    limiter.sample(10**9)
    assert limiter.blocked == "none"


def test_counters_are_the_whole_state() -> None:
    config = LimiterConfig(2.0, 10, 20.0)
    first = SamplesPerInsertLimiter(config)
    first.insert(17)
    first.sample(9)
    second = SamplesPerInsertLimiter(config, first.inserted, first.sampled)
    assert (second.error, second.blocked, second.sample_credit) == (first.error, first.blocked, first.sample_credit)

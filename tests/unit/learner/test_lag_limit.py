"""The limit on an unroll's age: what it follows, where it ends, and when too much is given up."""

from __future__ import annotations

from rljob.learner.lag_limit import MOST_UPDATES, LagLimit


def test_it_follows_the_way_that_is_measured_up_to_the_most_unless_the_user_wrote_it() -> None:
    limit, written = LagLimit(50, adapts=True), LagLimit(50, adapts=False)
    assert (limit.updates, limit.arrival_age_updates) == (50, None)
    for age, most in ((10, 60), (100, 150), (10_000, MOST_UPDATES)):
        for _ in range(64):
            limit.arrived(age)
            written.arrived(age)
        assert (limit.updates, written.updates) == (most, 50)
    assert LagLimit(5000, adapts=True).updates == 5000, "what a full queue needs is never cut"


def test_more_than_a_tenth_of_the_last_minute_is_said_with_what_to_change() -> None:
    limit = LagLimit(50, adapts=False)
    limit.arrived(70)
    for second in range(0, 60, 5):
        limit.count(second, 9 * second, float(second))
    assert limit.in_words() == "", "a tenth"
    for second in range(60, 180, 5):
        limit.count(9 * second, second, float(second))
    assert limit.in_words().startswith("90% of the last minute's unrolls were too old")
    assert "arrive up to 70 updates old, and 50 are allowed" in limit.in_words()
    assert "unrollQueue.maxPolicyLagUpdates" in limit.in_words()
    for second in range(180, 300, 5):
        limit.count(9 * 180, 100 * second, float(second))
    assert limit.in_words() == ""

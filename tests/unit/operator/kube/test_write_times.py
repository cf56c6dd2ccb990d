"""What may wait is written the later, the longer writes take, and never so late that no operator seems to look."""

from __future__ import annotations

import pytest
from rljob_operator.core.turn import StatusWrite
from rljob_operator.kube.job.status_writer import SEEN_SECONDS, SELDOM_SECONDS, WriteTimes

LONG_AGO = 0.0
NOW = 1000.0


def slow(seconds: float) -> WriteTimes:
    """The times of an API server each of whose writes has taken so long for a while."""
    times = WriteTimes()
    for _ in range(50):
        times.took(seconds)
    return times


@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.1])
def test_what_is_seen_after_a_quiet_moment_is_told_at_once(seconds: float) -> None:
    assert slow(seconds).due(StatusWrite.SOON, NOW, LONG_AGO) == pytest.approx(NOW, abs=0.01)


def test_what_is_seen_right_after_a_write_waits_for_more_of_it() -> None:
    assert WriteTimes().due(StatusWrite.SOON, NOW, NOW - 1.0) == NOW - 1.0 + SEEN_SECONDS


def test_an_api_server_that_has_too_much_to_do_is_given_time_but_not_without_end() -> None:
    waits = [slow(seconds).due(StatusWrite.SOON, NOW, LONG_AGO) - NOW for seconds in (0.15, 0.2, 0.3, 5.0)]
    assert (waits, waits[1]) == (sorted(waits), pytest.approx(SEEN_SECONDS, abs=0.1))
    assert waits[-1] == pytest.approx(2 * SEEN_SECONDS)
    assert slow(5.0).due(StatusWrite.SOON, NOW, NOW) - NOW < 10.0, "a cause is told within ten seconds even then"


def test_one_slow_write_changes_little() -> None:
    times = WriteTimes()
    times.took(0.5)
    assert times.due(StatusWrite.SOON, NOW, LONG_AGO) == NOW


@pytest.mark.parametrize(("seconds", "progress"), [(0.02, 30.0), (0.2, 60.0), (5.0, 90.0)])
def test_progress_waits_longer_and_time_alone_the_longest(seconds: float, progress: float) -> None:
    waits = [slow(seconds).due(write, NOW, NOW) - NOW for write in (StatusWrite.WHEN_DUE, StatusWrite.SELDOM)]
    assert waits == [pytest.approx(progress, abs=0.1), SELDOM_SECONDS]


def test_what_must_not_be_forgotten_waits_for_nothing() -> None:
    assert slow(5.0).due(StatusWrite.BEFORE_ACTING, NOW, NOW) == NOW
    assert slow(5.0).due(StatusWrite.NONE, NOW, NOW) == float("inf")

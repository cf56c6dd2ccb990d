"""Progress and time to go, on curves that are known."""

import math
import random

import pytest
from hypothesis import given, strategies as st
from rljob.telemetry.progress import Point, Progress, Target, progress


def steady(seconds: int, frames_per_second: int, curve: object = None) -> list[Point]:
    value = curve if callable(curve) else lambda _: None
    return [Point(float(t), t * frames_per_second, value(t)) for t in range(0, seconds + 1, 5)]


def test_frames_at_a_steady_rate() -> None:
    found = progress(Target(raw_frames=1_000_000), steady(250, 1000))
    assert found == Progress(pytest.approx(25.0), pytest.approx(750.0))


def test_the_recent_rate_counts() -> None:
    slow = steady(600, 100)
    fast = [Point(600.0 + t, 60_000 + t * 1000) for t in range(5, 301, 5)]
    assert progress(Target(raw_frames=1_000_000), slow + fast).eta_seconds == pytest.approx(640.0)


def test_met_targets() -> None:
    assert progress(Target(raw_frames=100), [Point(1.0, 100)]) == Progress(100.0, 0.0)
    assert progress(Target(mean_return=18), [], [17.0, 18.5]) == Progress(100.0, 0.0)
    three = Target(mean_return=18, window_evaluations=3)
    assert [progress(three, [], returns).percent for returns in ([17.5, 18.5, 18.0], [19.0, 19.0])] == [100.0, None]


@pytest.mark.parametrize("slope", [0.05, 0.0, -0.01], ids=["rising", "flat", "falling"])
def test_a_return_has_a_way_covered_but_no_time_to_go(slope: float) -> None:
    """A slope continued read 25 minutes forty seconds before the end of a run."""
    noise = random.Random(7)
    found = progress(Target(mean_return=10), steady(400, 10, lambda t: -20 + slope * t + noise.gauss(0, 0.3)))
    assert (found.percent, found.eta_seconds) == (pytest.approx(max(0.0, 100 * slope * 400 / 30), abs=5), None)


def test_the_criterion_that_is_further_on_its_way_leads() -> None:
    history = steady(400, 1000, lambda t: -20 + 0.05 * t)
    for frames, mean_return, seconds in ((500_000, 20, pytest.approx(100.0)), (50_000_000, 10, None)):
        assert progress(Target(raw_frames=frames, mean_return=mean_return), history).eta_seconds == seconds
    assert progress(Target(raw_frames=100, mean_return=5), []) == Progress(0.0, None)
    assert progress(Target(), history) == Progress(None, None)


values = st.floats(-1e6, 1e6)
points = st.builds(Point, st.floats(0, 1e7), st.integers(0, 2**40), st.none() | values)


@given(
    st.builds(Target, st.none() | st.integers(1, 2**40), st.none() | values, st.integers(1, 5)),
    st.lists(points, max_size=40),
    st.lists(values, max_size=6),
)
def test_always_in_range(target: Target, history: list[Point], evaluations: list[float]) -> None:
    history.sort(key=lambda point: (point.elapsed_seconds, point.raw_frames))
    found = progress(target, history, evaluations)
    assert found.percent is None or 0.0 <= found.percent <= 100.0
    assert found.eta_seconds is None or (found.eta_seconds >= 0 and math.isfinite(found.eta_seconds))

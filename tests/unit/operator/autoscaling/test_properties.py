"""What must hold whatever is seen: bounds, no decision from stale figures, restarts, jumps of the clock, and noise."""

import json
import math
import random
from dataclasses import replace

from hypothesis import given, settings, strategies as st
from rljob.api.roles import AutoscalingSpec
from rljob_operator.core.autoscaling.advance import advance
from rljob_operator.core.autoscaling.law import figure_error, observe, rates
from rljob_operator.core.autoscaling.model import AutoscalingMemory, RateMemory, ScalingSample, Supply

T0 = 1_700_000_000.0
fraction = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, -0.1, math.nan, math.inf]))
rate = st.one_of(st.floats(0, 1e6), st.sampled_from([0.0, 1e-300, 1e300, -1.0, math.nan]))
age = st.one_of(st.floats(0, 44), st.sampled_from([46.0, 1e6, -3600.0]))
step = st.tuples(
    st.sampled_from([1.0, 5.0, 15.0, 16.0, 200.0, 90_000.0, -3600.0]),
    st.one_of(st.none(), st.tuples(age, fraction, fraction, rate, rate, rate, st.booleans())),
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(0, 80),
)
ACTORS = 40


@settings(max_examples=120)
@given(
    st.integers(0, 20),
    st.integers(20, 60),
    st.sampled_from(["Internal", "External"]),
    st.sampled_from(["None", "ScaleIn", "ScaleOut", "All"]),
    st.lists(step, min_size=1, max_size=25),
)
def test_invariants(low: int, high: int, mode: str, pause: str, steps: list) -> None:  # type: ignore[type-arg]
    spec = AutoscalingSpec(mode=mode, pause=pause, min_replicas=low, max_replicas=high)  # type: ignore[arg-type]
    memory, now, before, wish_before = AutoscalingMemory(), T0, None, None
    for elapsed, seen, ready, pending, wish in steps:
        now += elapsed
        sample = None
        if seen is not None:
            old, wait, blocked, consumed, produced, depth, advancing = seen
            sample = ScalingSample(
                now - old, wait, blocked, consumed, produced, depth, 64.0, 1.0, learner_advancing=advancing
            )
        supply = Supply(ready, pending, 0, 0.0, T0, wish)
        answer = advance(spec, memory, sample, supply, now)
        assert low <= answer.desired <= high
        assert answer == advance(spec, memory, sample, supply, now)
        reborn = AutoscalingMemory.from_dict(json.loads(json.dumps(memory.to_dict(), allow_nan=False)))
        assert answer == advance(spec, reborn, sample, supply, now)
        unusable = sample is None or not -1 <= now - sample.taken_seconds <= 45
        if before is not None and unusable and wish == wish_before:
            assert answer.desired == before, "nothing is decided from stale figures"
        assert len(json.dumps(answer.memory.to_dict())) < 6000
        memory, before, wish_before = answer.memory, answer.desired, wish


@settings(max_examples=15)
@given(st.lists(st.sampled_from([-86_400.0, -60.0, 61.0, 86_400.0]), min_size=1, max_size=5))
def test_a_matched_fleet_survives_any_clock(jumps: list[float]) -> None:
    spec = AutoscalingSpec(mode="Internal", min_replicas=1, max_replicas=100)
    memory, now = AutoscalingMemory(), T0
    for jump in [*jumps, 0.0]:
        for _ in range(120):
            now += 1
            sample = ScalingSample(now, 0.0, 0.0, 40.0, 40.0, 32.0, 64.0, 1.0)
            answer = advance(spec, memory, sample, Supply(40, 0, 0, 0.0, T0, 40), now)
            memory = answer.memory
            assert answer.desired == 40
        assert answer.memory.active == "ValidMetricFound"
        now += jump


def figures(now: float, wait: float, error: float = 0.0, chance: random.Random | None = None) -> ScalingSample:
    """Forty actors of one item a second; the learner waits as much as is said. Rates err as is said."""
    one, other = (1 + error * chance.gauss(0, 1) if chance else 1.0 for _ in range(2))
    return ScalingSample(now, wait, 0.0, ACTORS * max(0.1, one), ACTORS * max(0.1, other), 32.0, 64.0, 1.0)


def after(error: float, samples: int = 60, seed: int = 0, wait: float = 0.01) -> RateMemory:
    chance, memory = random.Random(seed), RateMemory()
    for k in range(samples):
        memory = observe(memory, figures(15.0 * k, wait, error, chance), ACTORS)
    return memory


def needed(memory: RateMemory) -> float:
    return rates(memory).needed


def test_the_error_of_figures_is_measured() -> None:
    for error, low, high in ((0.0, 0.0, 0.03), (0.1, 0.06, 0.15), (0.4, 0.2, 0.6)):
        assert low <= figure_error(after(error)) <= high


def test_figures_that_do_not_all_come_in_are_not_noisy() -> None:
    memory = RateMemory()
    for k in range(200):
        memory = observe(memory, replace(figures(15.0 * k, 0.01), production_per_second=20.0), ACTORS)
    assert figure_error(memory) < 0.05


def test_one_sample_proves_a_jump_where_figures_are_good_and_not_where_they_are_bad() -> None:
    good, bad = after(0.1), after(0.8)
    jump = figures(15.0 * 60, 0.43)
    assert needed(observe(good, jump, ACTORS)) > 60
    seen = observe(bad, jump, ACTORS)
    assert needed(seen) < 60
    for k in range(61, 76):
        seen = observe(seen, figures(15.0 * k, 0.43), ACTORS)
    assert needed(seen) > 65, "the window follows"


def test_a_jump_that_a_sample_caught_half_way_is_followed_to_its_end() -> None:
    memory = after(0.1)
    for k, wait in ((60, 0.2), (61, 0.43)):
        memory = observe(memory, figures(15.0 * k, wait), ACTORS)
    assert needed(memory) > 68


def test_noise_makes_growth_careful() -> None:
    none, some, much = (rates(after(error, wait=0.43)).uncertainty for error in (0.0, 0.1, 0.8))
    assert none <= some < much <= 0.5

"""What must hold whatever is seen: bounds, no decision from stale figures, restarts and jumps of the clock change nothing."""

from __future__ import annotations

import json
import math

from hypothesis import given, settings, strategies as st
from rljob.api.autoscaling import AutoscalingSpec
from rljob_operator.core.autoscaling import AutoscalingMemory, ScalingSample, Supply, advance

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

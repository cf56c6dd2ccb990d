"""Streams whose environment fails now and then: what was complete is emitted, the rest is counted, nothing reaches over."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from rljob.experience import Segment, SegmentBuilder, make_builder, transition_layout, unroll_layout
from rljob.observation import frames

from tests.support.experience import recorded


class FailingStreams:
    """N streams that show (environment, time) and never end, but fail at random. ``rows[e][t]`` is None where t failed."""

    def __init__(self, num_envs: int, stack: int, failures: float, seed: int) -> None:
        self.num_envs, self.failures, self.time = num_envs, failures, 0
        self.random = np.random.default_rng(seed)
        self.observation = self._begun(np.ones(num_envs, np.bool_), np.zeros((num_envs, stack, 2), np.float32))
        self.rows: list[list[int | None]] = [[] for _ in range(num_envs)]

    def _begun(self, rows: np.ndarray, observation: np.ndarray) -> np.ndarray:
        for env in np.flatnonzero(rows):
            observation[env] = [env, self.time]
        return observation

    def step(self, builder: SegmentBuilder | SegmentBuilder) -> list[Segment]:
        count, time = self.num_envs, self.time
        cut = self.random.random(count) < self.failures
        for env, failed in enumerate(cut):
            self.rows[env].append(None if failed else time)
        self.time += 1
        newest = np.stack([np.arange(count), np.full(count, self.time)], axis=1).astype(np.float32)
        self.observation = self._begun(cut, np.concatenate([self.observation[:, 1:], newest[:, None]], axis=1))
        nowhere, zeros = np.zeros(count, np.bool_), np.zeros(count, np.float32)
        common = (np.full(count, time), zeros + time, nowhere, nowhere, nowhere, self.observation)
        failed = cut if cut.any() else None
        return recorded(builder, *common, taken=zeros, value=zeros, cut=failed)

    @property
    def steps(self) -> int:
        return sum(row is not None for rows in self.rows for row in rows)


@pytest.mark.parametrize("stack", [1, 3])
@settings(max_examples=25)
@given(length=st.integers(1, 6), failures=st.sampled_from([0.02, 0.2, 1.0]), seed=st.integers(0, 1000))
def test_an_unroll_with_a_failure_in_it_is_lost_and_all_others_are_whole(
    stack: int, length: int, failures: float, seed: int
) -> None:
    streams = FailingStreams(3, stack, failures, seed)
    builder = make_builder(unroll_layout(length, frames((2,), np.float32, stack)), 3, 0.9, False, "a", "i", 1)
    builder.begin(streams.observation)
    found = []
    for _ in range(6 * length):
        found += streams.step(builder)
        assert builder.produced + builder.cut_steps + builder.pending == streams.steps
        assert builder.pending == 0 or builder.steps_into_unroll
    assert [(unroll.environment, unroll["action"].tolist()) for unroll in found] == [
        (env, rows[first : first + length])
        for first in range(0, 6 * length, length)
        for env, rows in enumerate(streams.rows)
        if None not in rows[first : first + length]
    ]
    for sequence, unroll in enumerate(found):
        unroll.check()
        begins = unroll["action"][0]
        newest = unroll["frames"][unroll["observation"]][:, 1].tolist()
        assert (unroll.sequence, newest) == (sequence, list(range(begins, begins + length + 1)))
        assert (unroll["frames"][:, 0] == unroll.environment).all()


@pytest.mark.parametrize("stack", [1, 3])
@settings(max_examples=25)
@given(
    length=st.integers(1, 6),
    n_step=st.integers(1, 4),
    failures=st.sampled_from([0.02, 0.2, 1.0]),
    seed=st.integers(0, 1000),
)
def test_no_transition_bootstraps_over_a_failure(
    stack: int, length: int, n_step: int, failures: float, seed: int
) -> None:
    streams = FailingStreams(3, stack, failures, seed)
    layout = transition_layout(length, frames((2,), np.float32, stack), n_step)
    builder = make_builder(layout, 3, 0.9, False, "a", "i", 1)
    builder.begin(streams.observation)
    found: list[list[int]] = [[], [], []]
    for _ in range(60):
        for chunk in streams.step(builder):
            chunk.check()
            found[chunk.environment] += chunk["action"].tolist()
            # The frames tell the time: n steps on, and in the same life.
            ahead = chunk["frames"][chunk["next_observation"]][:, 1] - chunk["frames"][chunk["observation"]][:, 1]
            assert (ahead == n_step).all()
            returns = [sum(0.9**k * (a + k) for k in range(n_step)) for a in chunk["action"].tolist()]
            np.testing.assert_allclose(chunk["n_step_return"], returns, rtol=1e-5)
        assert builder.produced + builder.cut_steps + builder.pending == streams.steps
    for chunk in builder.flush():
        found[chunk.environment] += chunk["action"].tolist()
    for env, rows in enumerate(streams.rows):
        complete = [t for t in range(60 - n_step) if None not in rows[t : t + n_step + 1]]
        # The step before a failure has seen its n rewards but not the value behind them, unless the next one went well.
        assert found[env] == complete

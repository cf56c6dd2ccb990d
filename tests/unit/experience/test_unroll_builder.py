"""Unrolls against a slow record of what was seen, one step at a time, also where an environment fails now and then."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from rljob.experience import (
    Segment,
    SegmentBuilder,
    SegmentLayout,
    make_builder,
    transition_layout,
    unroll_layout,
)
from rljob.observation import frames

from tests.support.experience import recorded

GAMMA = 0.9


@dataclass
class Seen:
    """One step of one stream, nothing shared."""

    observation: np.ndarray
    row: list[float]
    """Action, reward, the chance of the action and the version of its policy."""
    ends: str
    final_value: float
    state: np.ndarray


class Streams:
    """N streams of random frames that end at random, and a record of every step."""

    def __init__(self, layout: SegmentLayout, num_envs: int, seed: int, ends: float, memory: int = 0) -> None:
        self.layout, self.num_envs, self.ends, self.memory = layout, num_envs, ends, memory
        self.random = np.random.default_rng(seed)
        self.observation = self._frames((num_envs, layout.stack))
        self.seen: list[list[Seen]] = [[] for _ in range(num_envs)]

    def _frames(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.random.integers(0, 256, (*shape, *self.layout.observation[0].shape), dtype=np.uint8)

    def step(self, builder: SegmentBuilder, version: int) -> list[Segment]:
        count, random = self.num_envs, self.random
        action = random.integers(0, 4, count)
        reward, taken, final_value = random.normal(size=(3, count)).astype(np.float32)
        taken = -np.abs(taken)
        state = random.normal(size=(count, 2, self.memory)).astype(np.float32)
        kind = random.choice(
            ["goes on", "terminated", "truncated", "life lost"], count, p=[1.0 - 3 * self.ends, *[self.ends] * 3]
        )
        terminated, truncated, life_lost = (kind == name for name in ("terminated", "truncated", "life lost"))
        following = np.concatenate([self.observation[:, 1:], self._frames((count, 1))], axis=1)
        ended = terminated | truncated
        following[ended] = self._frames((count, self.layout.stack))[ended]
        for env, seen in enumerate(self.seen):
            row = [action[env], reward[env], taken[env], version]
            seen.append(Seen(self.observation[env].copy(), row, kind[env], final_value[env], state[env].copy()))
        unrolls = recorded(
            builder, action, reward, terminated, truncated, life_lost, following, taken=taken, value=np.zeros(count, np.float32),
            final_value=final_value if truncated.any() else None, version=version, state=state,
        )  # fmt: skip
        self.observation = following
        return unrolls


def stack_at(unroll: Segment, t: int, stack: int) -> np.ndarray:
    at = int(unroll["observation"][t])
    return unroll["frames"][at - stack + 1 : at + 1]


@settings(max_examples=40)
@given(
    length=st.integers(1, 7),
    stack=st.integers(1, 4),
    num_envs=st.integers(1, 3),
    memory=st.sampled_from([0, 3]),
    ends=st.sampled_from([0.0, 0.05, 0.3]),
    life_loss_ends=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_unrolls_are_what_was_seen(
    length: int, stack: int, num_envs: int, memory: int, ends: float, life_loss_ends: bool, seed: int
) -> None:
    layout = unroll_layout(length, frames((2, 3), np.uint8, stack), memory)
    streams = Streams(layout, num_envs, seed, ends, memory)
    builder = make_builder(layout, num_envs, GAMMA, life_loss_ends, "actor-0", "i1", epoch=3)
    builder.begin(streams.observation)
    found: list[Segment] = []
    shown = []
    for step in range(1, 3 * length + 1):
        found += streams.step(builder, version=step // 2)
        # All streams' unrolls come with their last step, and nothing of them stays.
        unrolls, into = divmod(step, length)
        assert (len(found), builder.steps_into_unroll) == (unrolls * num_envs, into)
        assert (builder.produced, builder.pending) == (unrolls * length * num_envs, into * num_envs)
        if not into:
            shown.append(streams.observation.copy())
    assert [unroll.sequence for unroll in found] == list(range(len(found)))
    for index, unroll in enumerate(found):
        unroll.check()
        part, env = divmod(index, num_envs)
        seen = streams.seen[env][part * length : (part + 1) * length]
        assert (unroll.environment, unroll.epoch, unroll.policy_version) == (env, 3, seen[0].row[-1])
        np.testing.assert_array_equal(unroll["state"], seen[0].state)
        for t, step in enumerate(seen):
            np.testing.assert_array_equal(stack_at(unroll, t, stack), step.observation)
            ends_here = step.ends in ("terminated", "truncated") or (life_loss_ends and step.ends == "life lost")
            assert unroll["discount"][t] == (0.0 if ends_here else np.float32(GAMMA))
            assert unroll["ended"][t] == ends_here + (step.ends == "truncated")
            assert unroll["final_value"][t] == np.float32(step.final_value if step.ends == "truncated" else 0.0)
            assert [unroll[name][t] for name in ("action", "reward", "log_prob", "policy_version")] == step.row
        np.testing.assert_array_equal(stack_at(unroll, length, stack), shown[part][env])


def one_unroll(layout: SegmentLayout) -> Segment:
    streams = Streams(layout, 1, 0, 0.0)
    builder = make_builder(layout, 1, GAMMA, False, "actor-0", "i1", 0)
    builder.begin(streams.observation)
    return next(unroll for _ in range(layout.length) for unroll in streams.step(builder, 1))


LAYOUT = unroll_layout(4, frames((2, 3), np.uint8, 2), 0)


def test_unknown_values_are_recorded_as_zero_and_steps_need_a_beginning() -> None:
    builder = make_builder(LAYOUT, 1, GAMMA, False, "actor-0", "i1", 0)
    never, unknown = np.zeros(1, bool), np.full(1, np.nan, np.float32)
    step = partial(
        recorded, builder, np.zeros(1, np.int64), np.zeros(1, np.float32), never, ~never, never,
        np.zeros((1, 2, 2, 3), np.uint8), taken=np.full(1, -1.0, np.float32), value=unknown, final_value=unknown, version=0,
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="before begin"):
        step()
    builder.begin(np.zeros((1, 2, 2, 3), np.uint8))
    (found,) = (unroll for _ in range(4) for unroll in step())
    found.check()
    assert not found["final_value"].any()


def test_streams_that_begin_anew_lose_the_unroll_that_was_under_way() -> None:
    streams = Streams(LAYOUT, 2, 0, 0.0)
    builder = make_builder(LAYOUT, 2, GAMMA, False, "actor-0", "i1", 0)
    assert builder.begin(streams.observation) == 0
    for _ in range(7):
        streams.step(builder, 1)
    assert builder.begin(streams.observation) == builder.num_envs * 3
    assert (builder.pending, builder.steps_into_unroll) == (0, 0)
    begins = streams.observation
    (first, _) = [unroll for _ in range(4) for unroll in streams.step(builder, 1)]
    np.testing.assert_array_equal(stack_at(first, 0, LAYOUT.stack), begins[0])
    assert builder.begin(streams.observation) == 0, "between unrolls nothing is under way"


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

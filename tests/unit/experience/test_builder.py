"""The vectorised builder against the naive reference, over random streams and the cases that catch real bugs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rljob.experience import (
    LIFE_LOST,
    TERMINATED,
    TRUNCATED,
    Segment,
    SegmentBuilder,
    SegmentLayout,
    make_builder,
    transition_layout,
)
from rljob.observation import frames

from tests.support.experience import recorded
from tests.support.reference_experience import Recorder, Step, reference_transitions


class RandomStreams:
    """N streams of random frames; a reset shows S unrelated frames, so that no padding can be right by luck."""

    def __init__(self, layout: SegmentLayout, num_envs: int, seed: int) -> None:
        self.layout, self.num_envs = layout, num_envs
        self.random = np.random.default_rng(seed)
        self.observation = self._frames(num_envs, layout.stack)

    def _frames(self, *leading: int) -> np.ndarray:
        shape = (*leading, *self.layout.observation[0].shape)
        if self.layout.observation[0].dtype.kind == "f":
            return self.random.standard_normal(shape).astype(self.layout.observation[0].dtype)
        return self.random.integers(0, 256, shape).astype(self.layout.observation[0].dtype)

    def step(self, ended: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns (observation acted on, true successor, observation after autoreset)."""
        before = self.observation
        successor = np.concatenate([before[:, 1:], self._frames(self.num_envs, 1)], axis=1)
        after = successor.copy()
        after[ended] = self._frames(int(ended.sum()), self.layout.stack)
        self.observation = after
        return before, successor, after


def drive(
    builder: SegmentBuilder,
    streams: RandomStreams,
    recorder: Recorder,
    events: np.ndarray,
    *,
    n_step: int,
    gamma: float,
    life_loss_ends: bool,
    unknown_before: int = 0,
) -> list[Segment]:
    """Feed ``events`` [steps, N] (bits as in ``Chunk.flags``) to builder and reference; check every chunk emitted."""
    random = streams.random
    chunks = []
    for t, bits in enumerate(events):
        terminated, truncated, life = bits & TERMINATED > 0, bits & TRUNCATED > 0, bits & LIFE_LOST > 0
        before, successor, after = streams.step(terminated | truncated)
        n = streams.num_envs
        action, reward = random.integers(0, 9, n), random.standard_normal(n).astype(np.float32)
        q_taken, value, final_value = random.standard_normal((3, n)).astype(np.float32)
        if t < unknown_before:
            q_taken, value, final_value = np.full((3, n), np.nan, np.float32)
        for e in range(n):
            recorder.record(
                e,
                Step(
                    observation=before[e].copy(),
                    action=int(action[e]),
                    reward=float(reward[e]),
                    terminated=bool(terminated[e]),
                    truncated=bool(truncated[e]),
                    life_lost=bool(life[e]),
                    successor=successor[e].copy(),
                    q_taken=float(q_taken[e]),
                    value=float(value[e]),
                    final_value=float(final_value[e]),
                    policy_version=t,
                ),
            )
        final = successor if (terminated | truncated).any() else None
        emitted = recorded(
            builder, action, reward, terminated, truncated, life, after, final,
            taken=q_taken, value=value, final_value=final_value, version=t,
        )  # fmt: skip
        recorder.check(emitted, n_step, gamma, life_loss_ends)
        chunks += emitted
    return chunks


@settings(max_examples=150)
@given(data=st.data())
def test_random_streams_equal_the_reference(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 12), "T")
    stack = data.draw(st.integers(1, 4), "S")
    n_step = data.draw(st.integers(1, 7), "n")
    num_envs = data.draw(st.integers(1, 5), "N")
    steps = data.draw(st.integers(0, 60), "steps")
    life_loss_ends = data.draw(st.booleans(), "life loss ends")
    gamma = data.draw(st.sampled_from([0.0, 0.5, 0.99, 1.0]), "gamma")
    dtype = data.draw(st.sampled_from(["u1", "f4"]), "dtype")
    rate = data.draw(st.sampled_from([0.0, 0.05, 0.3, 0.9]), "boundary rate")
    unknown = data.draw(st.integers(0, 20), "steps without weights")
    layout = transition_layout(length, frames((2, 3), dtype, stack), n_step)
    streams = RandomStreams(layout, num_envs, data.draw(st.integers(0, 2**32), "seed"))
    kinds = streams.random.choice([TERMINATED, TRUNCATED, LIFE_LOST, 3, 5, 6, 7], (steps, num_envs))
    events = np.where(streams.random.random((steps, num_envs)) < rate, kinds, 0)

    builder = make_builder(layout, num_envs, gamma, life_loss_ends, "actor-0", "a1", epoch=3)
    builder.begin(streams.observation)
    recorder = Recorder(num_envs, stack)
    rules = {"n_step": n_step, "gamma": gamma, "life_loss_ends": life_loss_ends}
    chunks = drive(builder, streams, recorder, events, unknown_before=unknown, **rules)
    flushed = builder.flush()
    recorder.check(flushed, **rules)
    chunks += flushed

    for environment, seen in enumerate(recorder.seen):
        assert seen == len(reference_transitions(recorder.steps[environment], **rules)), "a complete one was kept"
        assert seen >= max(0, steps - n_step)
    assert [chunk.sequence for chunk in chunks] == list(range(len(chunks)))
    assert builder.produced == sum(chunk.steps for chunk in chunks)
    assert builder.produced + builder.pending == steps * num_envs, "conservation: every step is produced or pending"
    for chunk in chunks:
        chunk.check()
        assert chunk.epoch == 3
        assert (chunk.actor, chunk.incarnation) == ("actor-0", "a1")


def make(length: int, stack: int, n_step: int, num_envs: int = 1, life_loss_ends: bool = False, gamma: float = 0.9):
    layout = transition_layout(length, frames((2,), "u1", stack), n_step)
    streams = RandomStreams(layout, num_envs, seed=5)
    builder = make_builder(layout, num_envs, gamma, life_loss_ends, "actor-0", "a1", epoch=0)
    builder.begin(streams.observation)
    rules = {"n_step": n_step, "gamma": gamma, "life_loss_ends": life_loss_ends}
    return builder, streams, Recorder(num_envs, stack), rules


def column(*events: int) -> np.ndarray:
    return np.array(events).reshape(-1, 1)


def test_window_longer_than_the_episode_emits_every_short_window() -> None:
    builder, streams, recorder, rules = make(length=10, stack=2, n_step=8)
    drive(builder, streams, recorder, column(0, 0, TERMINATED, 0, TRUNCATED), **rules)
    (chunk,) = builder.flush()
    recorder.check([chunk], **rules)
    assert chunk.steps == 5
    np.testing.assert_allclose(chunk["discount"], [0, 0, 0, 0.9**2, 0.9], rtol=1e-6)


def test_truncation_bootstraps_and_termination_does_not() -> None:
    builder, streams, recorder, rules = make(length=20, stack=3, n_step=3)
    drive(builder, streams, recorder, column(0, 0, 0, TRUNCATED, 0, 0, TERMINATED), **rules)
    (chunk,) = builder.flush()
    recorder.check([chunk], **rules)
    np.testing.assert_allclose(chunk["discount"], [0.9**3, 0.9**3, 0.9**2, 0.9, 0, 0, 0], rtol=1e-6)


@pytest.mark.parametrize("ends", [True, False])
def test_life_loss_ends_the_return_but_not_the_stream(ends: bool) -> None:
    builder, streams, recorder, rules = make(length=20, stack=4, n_step=2, life_loss_ends=ends)
    drive(builder, streams, recorder, column(0, LIFE_LOST, 0, 0, 0), **rules)
    (chunk,) = builder.flush()
    recorder.check([chunk], **rules)
    assert chunk["discount"][:2].tolist() == ([0, 0] if ends else pytest.approx([0.9**2] * 2))
    # No reset frames: the positions simply go on.
    assert np.diff(chunk["observation"]).tolist() == [1] * (chunk.steps - 1)


def test_two_episodes_inside_one_window() -> None:
    builder, streams, recorder, rules = make(length=20, stack=2, n_step=6)
    drive(builder, streams, recorder, column(TERMINATED, TRUNCATED, 0, TERMINATED, 0), **rules)
    (chunk,) = builder.flush()
    recorder.check([chunk], **rules)
    assert chunk.steps == 4


def test_first_chunks_are_staggered_and_later_ones_full() -> None:
    builder, streams, recorder, rules = make(length=8, stack=2, n_step=2, num_envs=4)
    chunks = drive(builder, streams, recorder, np.zeros((60, 4), int), **rules)
    first = {chunk.environment: chunk.steps for chunk in reversed(chunks)}
    assert first == {0: 8, 1: 6, 2: 4, 3: 2}
    assert sum(chunk.steps != 8 for chunk in chunks) == 3


def test_many_boundaries_close_a_chunk_early() -> None:
    builder, streams, recorder, rules = make(length=50, stack=4, n_step=3)
    chunks = drive(builder, streams, recorder, column(*[TERMINATED] * 300), **rules)
    assert len(chunks) > 300 // 50
    assert max(len(chunk["frames"]) for chunk in chunks) <= builder.layout.max_frames
    assert sum(chunk.steps for chunk in chunks) + builder.pending == 300


def test_stepping_goes_on_after_a_flush_and_begin_cuts() -> None:
    builder, streams, recorder, rules = make(length=10, stack=2, n_step=3)
    drive(builder, streams, recorder, np.zeros((7, 1), int), **rules)
    recorder.check(builder.flush(), **rules)
    assert builder.pending == 3
    drive(builder, streams, recorder, np.zeros((9, 1), int), **rules)
    recorder.check(builder.flush(), **rules)
    assert recorder.seen == [13]
    assert builder.begin(streams.observation) == 3
    assert builder.flush() == []


def test_misuse_is_named() -> None:
    layout = transition_layout(4, frames((2,), "u1", 2), 1)
    builder = make_builder(layout, 1, 0.9, False, "actor-0", "a1", 0)
    one, no = np.zeros(1), np.zeros(1, bool)
    observation = np.zeros((1, 2, 2), np.uint8)
    with pytest.raises(RuntimeError, match="before begin"):
        recorded(builder, one, one, no, no, no, observation, taken=one, value=one)
    with pytest.raises(ValueError, match="the layout needs"):
        builder.begin(observation.astype(np.float32))
    builder.begin(observation)
    with pytest.raises(ValueError, match="without final_observation"):
        recorded(builder, one, one, no, ~no, no, observation, taken=one, value=one)
    with pytest.raises(ValueError, match="gamma"):
        make_builder(layout, 1, 1.5, False, "actor-0", "a1", 0)
    with pytest.raises(ValueError, match="num_envs"):
        make_builder(layout, 0, 0.9, False, "actor-0", "a1", 0)

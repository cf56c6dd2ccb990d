"""The vectorised builder against the naive reference, over random streams, the cases that catch real bugs, and real games."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from rljob.api import EnvironmentParameters
from rljob.envs import make_vector_environment
from rljob.experience import (
    LIFE_LOST,
    TERMINATED,
    TRUNCATED,
    Decision,
    Segment,
    SegmentBuilder,
    SegmentLayout,
    make_builder,
    transition_layout,
)
from rljob.observation import frames
from rljob.wire import encode

from tests.support.experience import recorded
from tests.support.reference_experience import Recorder, reference_transitions


class RandomStreams:
    """N streams of random frames; a reset shows S unrelated frames, so that no padding can be right by luck."""

    def __init__(self, layout: SegmentLayout, num_envs: int, seed: int) -> None:
        self.layout, self.num_envs, self.random = layout, num_envs, np.random.default_rng(seed)
        self.observation = self._frames(num_envs, layout.stack)

    def _frames(self, *leading: int) -> np.ndarray:
        column = self.layout.observation[0]
        return (256 * self.random.random((*leading, *column.shape))).astype(column.dtype)

    def step(self, ended: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns (observation acted on, true successor, observation after autoreset)."""
        before = self.observation
        successor = np.concatenate([before[:, 1:], self._frames(self.num_envs, 1)], axis=1)
        self.observation = successor.copy()
        self.observation[ended] = self._frames(int(ended.sum()), self.layout.stack)
        return before, successor, self.observation


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
        recorder.record(
            before, successor, t, action=action, reward=reward, terminated=terminated, truncated=truncated, life_lost=life,
            q_taken=q_taken, value=value, final_value=final_value,
        )  # fmt: skip
        final = successor if (terminated | truncated).any() else None
        emitted = recorded(
            builder, action, reward, terminated, truncated, life, after, final,
            taken=q_taken, value=value, final_value=final_value, version=t,
        )  # fmt: skip
        recorder.check(emitted, n_step, gamma, life_loss_ends)
        chunks += emitted
    return chunks


@settings(max_examples=150)
@given(
    length=st.integers(1, 12),
    stack=st.integers(1, 4),
    n_step=st.integers(1, 7),
    num_envs=st.integers(1, 5),
    steps=st.integers(0, 60),
    life_loss_ends=st.booleans(),
    gamma=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    dtype=st.sampled_from(["u1", "f4"]),
    rate=st.sampled_from([0.0, 0.05, 0.3, 0.9]),
    unknown=st.integers(0, 20),
    seed=st.integers(0, 2**32),
)
def test_random_streams_equal_the_reference(
    length: int, stack: int, n_step: int, num_envs: int, steps: int, life_loss_ends: bool, gamma: float, dtype: str,
    rate: float, unknown: int, seed: int,
) -> None:  # fmt: skip
    """``rate``: of boundaries; ``unknown``: steps without weights."""
    layout = transition_layout(length, frames((2, 3), dtype, stack), n_step)
    streams = RandomStreams(layout, num_envs, seed)
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

    complete = [len(reference_transitions(of_stream, **rules)) for of_stream in recorder.steps]
    assert (recorder.seen, min(complete) >= max(0, steps - n_step)) == (complete, True), "a complete one was kept"
    assert [chunk.sequence for chunk in chunks] == list(range(len(chunks)))
    assert builder.produced == sum(chunk.steps for chunk in chunks)
    assert builder.produced + builder.pending == steps * num_envs, "conservation: every step is produced or pending"
    for chunk in chunks:
        chunk.check()
        assert (chunk.epoch, chunk.actor, chunk.incarnation) == (3, "actor-0", "a1")


def make(length: int, stack: int, n_step: int, num_envs: int = 1, life_loss_ends: bool = False, gamma: float = 0.9):
    layout = transition_layout(length, frames((2,), "u1", stack), n_step)
    streams = RandomStreams(layout, num_envs, seed=5)
    builder = make_builder(layout, num_envs, gamma, life_loss_ends, "actor-0", "a1", epoch=0)
    builder.begin(streams.observation)
    rules = {"n_step": n_step, "gamma": gamma, "life_loss_ends": life_loss_ends}
    return builder, streams, Recorder(num_envs, stack), rules


def column(*events: int) -> np.ndarray:
    return np.array(events).reshape(-1, 1)


@pytest.mark.parametrize(
    ("n_step", "life_loss_ends", "events", "discounts"),
    [
        # A window longer than the episode: every short one is emitted.
        (8, False, [0, 0, TERMINATED, 0, TRUNCATED], [0, 0, 0, 0.9**2, 0.9]),
        # Truncation bootstraps, termination does not.
        (3, False, [0, 0, 0, TRUNCATED, 0, 0, TERMINATED], [0.9**3, 0.9**3, 0.9**2, 0.9, 0, 0, 0]),
        # A lost life ends the return where it is said to.
        (2, True, [0, LIFE_LOST, 0, 0, 0], [0, 0, 0.9**2]),
        (2, False, [0, LIFE_LOST, 0, 0, 0], [0.9**2] * 3),
        # Two episodes inside one window.
        (6, False, [TERMINATED, TRUNCATED, 0, TERMINATED, 0], [0, 0.9, 0, 0]),
    ],
)
def test_discounts_are_those_counted_by_hand(
    n_step: int, life_loss_ends: bool, events: list[int], discounts: list[float]
) -> None:
    builder, streams, recorder, rules = make(length=20, stack=3, n_step=n_step, life_loss_ends=life_loss_ends)
    drive(builder, streams, recorder, column(*events), **rules)
    (chunk,) = builder.flush()
    recorder.check([chunk], **rules)
    np.testing.assert_allclose(chunk["discount"], discounts, rtol=1e-6)
    if LIFE_LOST in events:  # no reset frames: the positions simply go on
        assert np.diff(chunk["observation"]).tolist() == [1] * (chunk.steps - 1)


def test_first_chunks_are_staggered_and_later_ones_full() -> None:
    builder, streams, recorder, rules = make(length=8, stack=2, n_step=2, num_envs=4)
    chunks = drive(builder, streams, recorder, np.zeros((60, 4), int), **rules)
    assert {chunk.environment: chunk.steps for chunk in reversed(chunks)} == {0: 8, 1: 6, 2: 4, 3: 2}
    assert sum(chunk.steps != 8 for chunk in chunks) == 3


def test_many_boundaries_close_a_chunk_early() -> None:
    builder, streams, recorder, rules = make(length=50, stack=4, n_step=3)
    chunks = drive(builder, streams, recorder, column(*[TERMINATED] * 300), **rules)
    assert len(chunks) > 300 // 50
    assert max(len(chunk["frames"]) for chunk in chunks) <= builder.layout.max_frames
    assert sum(chunk.steps for chunk in chunks) + builder.pending == 300


def test_stepping_goes_on_after_a_flush_and_begin_cuts() -> None:
    builder, streams, recorder, rules = make(length=10, stack=2, n_step=3)
    for steps, seen in ((7, 4), (9, 13)):
        drive(builder, streams, recorder, np.zeros((steps, 1), int), **rules)
        recorder.check(builder.flush(), **rules)
        assert (builder.pending, recorder.seen) == (3, [seen])
    assert (builder.begin(streams.observation), builder.flush()) == (3, [])


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


# Real games: every stack rebuilt from chunks equals what the environment returned, and chunks stay small.


def play(
    game: str, steps: int, num_envs: int, *, n_step: int = 3, record: bool = True, **parameters: object
) -> tuple[list[Segment], SegmentLayout, Recorder, int]:
    """Random play into a builder; with ``record`` each chunk is compared with what the environment showed."""
    environment_parameters = EnvironmentParameters(**parameters)
    environment = make_vector_environment(game, environment_parameters, num_envs, seed=3)
    spec = environment.spec
    life_loss_ends = environment_parameters.atari.life_loss == "EndsEpisode"
    layout = transition_layout(50, spec.columns, n_step)
    builder = make_builder(layout, num_envs, 0.99, life_loss_ends, "actor-0", "a1", 0)
    recorder = Recorder(num_envs, spec.stack)
    random = np.random.default_rng(0)
    chunks, lives_lost = [], 0
    observation = environment.reset()
    builder.begin(observation)
    for _ in range(steps):
        action = random.integers(0, spec.num_actions, num_envs)
        result = environment.step(action)
        q_taken, value, final_value = random.standard_normal((3, num_envs)).astype(np.float32)
        if record:
            successor, ended = result.observation.copy(), result.terminated | result.truncated
            if ended.any():
                successor[ended] = result.final_observation[ended]
            of_result = {name: getattr(result, name) for name in ("reward", "terminated", "truncated", "life_lost")}
            recorder.record(
                observation,
                successor,
                1,
                action=action,
                **of_result,
                q_taken=q_taken,
                value=value,
                final_value=final_value,
            )
        emitted = builder.record(Decision(action, q_taken, value, 1), result, final_value)
        if record:
            recorder.check(emitted, n_step, 0.99, life_loss_ends)
        chunks += emitted
        lives_lost += int(result.life_lost.sum())
        observation = result.observation
    environment.close()
    return chunks, layout, recorder, lives_lost


@pytest.mark.parametrize(
    ("game", "parameters"),
    [
        ("ALE/Pong-v5", {"max_episode_raw_frames": 1200}),  # truncates every 300 steps
        ("ALE/Breakout-v5", {"atari": {"life_loss": "EndsEpisode"}}),
        ("CartPole-v1", {}),
    ],
)
def test_every_stack_is_what_the_environment_returned(game: str, parameters: dict[str, object]) -> None:
    chunks, _, recorder, lives_lost = play(game, 700, 4, **parameters)
    steps = [step for stream in recorder.steps for step in stream]
    assert sum(chunk.steps for chunk in chunks) > 0.9 * len(steps)
    assert sum(step.truncated if game == "ALE/Pong-v5" else step.terminated for step in steps) >= 4
    assert (lives_lost > 10) == (game == "ALE/Breakout-v5")


@pytest.mark.parametrize("frame_size", [84, 42])
def test_bytes_of_a_pong_transition_on_the_wire(frame_size: int) -> None:
    chunks, layout, *_ = play("ALE/Pong-v5", 250, 8, record=False, atari={"frame_size": frame_size})
    encoded = [sum(map(len, encode(chunk.to_message(), compress=layout.compressed_columns))) for chunk in chunks]
    a_transition = sum(encoded) / sum(chunk.steps for chunk in chunks)
    assert a_transition <= 350, f"{a_transition:.0f} bytes"

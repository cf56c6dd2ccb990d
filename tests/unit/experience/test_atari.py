"""Real games: every stack rebuilt from chunks equals what the environment returned, and chunks stay small."""

from __future__ import annotations

import numpy as np
import pytest
from rljob.api import EnvironmentParameters
from rljob.envs import make_vector_environment
from rljob.experience import Decision, Segment, SegmentLayout, make_builder, transition_layout
from rljob.wire import encode

from tests.support.reference_experience import Recorder, Step


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
            for e in range(num_envs):
                ended = result.terminated[e] or result.truncated[e]
                successor = result.final_observation[e] if ended else result.observation[e]
                flags = (bool(result.terminated[e]), bool(result.truncated[e]), bool(result.life_lost[e]))
                numbers = (float(q_taken[e]), float(value[e]), float(final_value[e]))
                step = Step(observation[e], int(action[e]), float(result.reward[e]), *flags, successor, *numbers, 1)
                recorder.record(e, step)
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
    if game == "ALE/Pong-v5":
        assert sum(step.truncated for step in steps) >= 4
    else:
        assert sum(step.terminated for step in steps) >= 4
    assert (lives_lost > 10) == (game == "ALE/Breakout-v5")


@pytest.mark.parametrize("frame_size", [84, 42])
def test_bytes_of_a_pong_transition_on_the_wire(frame_size: int) -> None:
    chunks, layout, _, _ = play("ALE/Pong-v5", 250, 8, record=False, atari={"frame_size": frame_size})
    encoded = [sum(map(len, encode(chunk.to_message(), compress=layout.compressed_columns))) for chunk in chunks]
    a_transition = sum(encoded) / sum(chunk.steps for chunk in chunks)
    assert a_transition <= 350, f"{a_transition:.0f} bytes"
    full = [size / chunk.steps for size, chunk in zip(encoded, chunks, strict=True) if chunk.steps == layout.length]
    print(f"{frame_size}x{frame_size}: {a_transition:.0f} bytes a transition, {np.mean(full):.0f} in full chunks")

"""Native Atari against Gymnasium's wrapper stack on real ROMs: every byte, across ends of games."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rljob.api import EnvironmentParameters
from rljob.envs import make_vector_environment

from tests.support.plain_atari import plain_atari

STEPS = 1_300


@pytest.mark.parametrize(
    ("environment_id", "frame_size", "limit"),
    [
        ("ALE/Pong-v5", 84, 108_000),
        ("ALE/Breakout-v5", 84, 108_000),
        ("ALE/SpaceInvaders-v5", 42, 108_000),
        ("ALE/Seaquest-v5", 84, 1_001),  # a limit that cuts a frame skip short
    ],
)
def test_native_equals_the_gymnasium_stack(
    environment_id: str, frame_size: int, limit: int, any_seed: Callable[[int], int], closes: Any
) -> None:
    parameters = EnvironmentParameters(
        atari={"frame_size": frame_size, "noop_max": 0}, max_episode_raw_frames=limit, backend="Native"
    )
    native = closes(make_vector_environment(environment_id, parameters, 1, 7))
    reference = closes(plain_atari(environment_id, parameters))
    rng = np.random.default_rng(any_seed(0))
    ours, (theirs, info) = native.reset(), reference.reset(seed=7)
    np.testing.assert_array_equal(ours[0], theirs)
    lives, score, ends, lost = info["lives"], 0.0, 0, 0
    for _ in range(STEPS):
        action = int(rng.integers(native.spec.num_actions))
        result = native.step(np.array([action]))
        theirs, reward, terminated, truncated, info = reference.step(action)
        ended = terminated or truncated
        score += float(reward)
        assert result.reward[0] == np.sign(reward)
        assert (result.terminated[0], result.truncated[0]) == (terminated, truncated and not terminated)
        assert result.life_lost[0] == (not ended and 0 < info["lives"] < lives)
        lost += int(result.life_lost[0])
        lives = info["lives"]
        if ended:
            ends += 1
            np.testing.assert_array_equal(result.final_observation[0], theirs)
            (record,) = result.episodes
            assert (record.game_return, record.raw_frames) == (score, info["episode_frame_number"])
            theirs, info = reference.reset()
            lives, score = info["lives"], 0.0
        np.testing.assert_array_equal(result.observation[0], theirs)
    assert ends >= 1
    assert lost >= 1 or environment_id == "ALE/Pong-v5"


@pytest.mark.parametrize(
    "settings",
    [
        {"atari": {"max_pool": False}, "max_episode_raw_frames": 401},
        {
            "atari": {"fire_reset": True}
        },  # without a limit that matters: only the native one leaves out the frames of the start
        {"atari": {"frame_skip": 1}, "actions": (3, 2), "max_episode_raw_frames": 150},
    ],
)
def test_backends_agree_with_every_switch(
    settings: dict[str, Any], any_seed: Callable[[int], int], closes: Any
) -> None:
    """Two rows, native against our own wrapped stack, in what the plain stack of Gymnasium cannot do."""
    base = EnvironmentParameters(**{**settings, "atari": {"noop_max": 0, **settings["atari"]}})
    native = closes(make_vector_environment("ALE/Breakout-v5", base.updated(backend="Native"), 2, 3))
    sync = closes(make_vector_environment("ALE/Breakout-v5", base.updated(backend="Sync"), 2, 3))
    rng = np.random.default_rng(any_seed(1))
    np.testing.assert_array_equal(native.reset(), sync.reset())
    ends = 0
    for _ in range(450):
        actions = rng.integers(0, native.spec.num_actions, 2)
        a, b = native.step(actions), sync.step(actions)
        for name in ("observation", "reward", "terminated", "truncated", "life_lost", "raw_frames", "episodes"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
        if a.final_observation is not None and b.final_observation is not None:
            ended = a.terminated | a.truncated
            np.testing.assert_array_equal(a.final_observation[ended], b.final_observation[ended])
            ends += int(ended.sum())
    assert ends >= 2


def test_threads_do_not_change_what_happens(any_seed: Callable[[int], int], closes: Any) -> None:
    parameters, actions = EnvironmentParameters(), np.random.default_rng(any_seed(0))
    vectors = [closes(make_vector_environment("ALE/Pong-v5", parameters, 5, 3, threads=each)) for each in (1, 3)]
    observations = [vector.reset() for vector in vectors]
    for _ in range(150):
        assert all(np.array_equal(observation, observations[0]) for observation in observations)
        chosen = actions.integers(0, 6, 5)
        results = [vector.step(chosen) for vector in vectors]
        assert all(np.array_equal(result.reward, results[0].reward) for result in results)
        observations = [result.observation for result in results]


@pytest.mark.parametrize("backend", ["Native", "Sync"])
def test_raw_frames_are_the_emulators_own_count(backend: str, closes: Any) -> None:
    """With no-operation starts and games cut short, the sum over steps is ALE's frame number, not steps times 4."""
    parameters = EnvironmentParameters(backend=backend, atari={"noop_max": 20}, max_episode_raw_frames=203)
    env = closes(make_vector_environment("ALE/Pong-v5", parameters, 1, 5))
    env.reset()
    counted, records = 0, []
    for _ in range(200):
        result = env.step(np.zeros(1, np.int64))
        counted += result.raw_frames
        records += result.episodes
    assert len(records) >= 3
    if backend == "Native":  # its limit leaves out the no-operation start, so that every game adds that start
        assert all(203 <= record.raw_frames < 203 + 20 for record in records)
    else:
        assert all(record.raw_frames == 203 for record in records)
    assert counted != 800

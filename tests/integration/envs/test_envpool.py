"""EnvPool's environments keep the rules, are EnvPool's own games to the last bit, and are judged as they are trained."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rljob.api import EnvironmentParameters
from rljob.envs import (
    EnvironmentProblem,
    describe_environment,
    describe_environment_apart,
    describe_rewards,
    make_single_environment,
    make_vector_environment,
)

from tests.support.vector_rules import check_environment

envpool = pytest.importorskip(
    "envpool", reason="EnvPool is not installed: pip install 'rljob[envpool]', 840 MB, too large for the extra [test]"
)


def of_envpool(**settings: Any) -> EnvironmentParameters:
    return EnvironmentParameters(backend="EnvPool", **settings)


SHORT_PONG: dict[str, Any] = {"kwargs": {"max_episode_steps": 25, "noop_max": 5}}
CASES = [("CartPole-v1", {}, 20), ("MountainCar-v0", {}, 3), ("LunarLander-v3", {}, 6), ("Pong-v5", SHORT_PONG, 24)]
OF_SEVERAL_LEAVES = ("MiniGrid-DoorKey-5x5-v0", {"leaves": {"mission": "ignored"}}, 0)


@pytest.mark.parametrize(
    ("environment_id", "settings", "ends"),
    [*CASES, OF_SEVERAL_LEAVES, ("Taxi-v3", {}, 3), ("Pong-v5", {**SHORT_PONG, "actions": (0, 2, 3)}, 24)],
)
def test_it_keeps_the_rules(environment_id: str, settings: dict[str, Any], ends: int) -> None:
    parameters = of_envpool(**settings)
    assert check_environment(lambda: make_vector_environment(environment_id, parameters, 3, 0), steps=220) >= ends


def by_itself(environment_id: str, seed: int, kwargs: dict[str, Any]) -> Iterator[Any]:
    """One environment as EnvPool plays it: takes an action, gives (observation, reward, terminated, truncated, first observation
    of the next episode), its dummy step taken."""
    pool = envpool.make(environment_id, env_type="gymnasium", num_envs=1, seed=seed, **kwargs)
    observation, _ = pool.reset()
    action = yield observation[0]
    while True:
        observation, reward, terminated, truncated, _ = pool.step(np.asarray([action]))
        following = pool.step(np.asarray([0]))[0][0] if terminated[0] or truncated[0] else None
        action = yield observation[0], reward[0], terminated[0], truncated[0], following


@pytest.mark.parametrize(("environment_id", "settings", "ends"), CASES)
def test_each_row_is_what_envpool_plays_with_its_seed(environment_id: str, settings: dict[str, Any], ends: int) -> None:
    settings = {**settings, "reward_clipping": "Disabled"}
    env = make_vector_environment(
        environment_id, of_envpool(**settings), 3, 2**31 - 2
    )  # a copy's seed begins again at 0
    references = [by_itself(environment_id, (2**31 - 2 + row) % 2**31, settings.get("kwargs", {})) for row in range(3)]
    observation, random, ended = env.reset(), np.random.default_rng(1), 0
    for row, reference in enumerate(references):
        same(observation[row, 0], next(reference))
    for _ in range(220):
        actions = random.integers(0, env.spec.num_actions, 3)
        result = env.step(actions)
        for row, reference in enumerate(references):
            seen, reward, terminated, truncated, following = reference.send(actions[row])  # type: ignore[attr-defined]
            assert (result.reward[row], result.terminated[row], result.truncated[row]) == (
                np.float32(reward),
                terminated,
                truncated,
            )
            if following is None:
                same(result.observation[row, 0], seen)
            else:
                ended += 1
                same(result.final_observation[row, 0], seen)
                same(result.observation[row, 0], following)
    env.close()
    assert ended >= ends


def same(ours: NDArray[Any], theirs: NDArray[Any]) -> None:
    assert np.array_equal(ours, theirs.astype(ours.dtype))


def test_it_is_scored_as_it_is_trained(closes: Any) -> None:
    vector = closes(make_vector_environment("CartPole-v1", of_envpool(), 1, 7))
    single = closes(make_single_environment("CartPole-v1", of_envpool(), for_scoring=True))
    assert np.array_equal(vector.reset()[0], single.reset(seed=7)[0])
    for action in [0, 1] * 10:
        result = vector.step(np.array([action]))
        observation, _, terminated, _, _ = single.step(action)
        if terminated:
            break
        assert np.array_equal(result.observation[0], observation)
    first = single.reset(seed=7)[0]
    assert not np.array_equal(first, single.reset(seed=8)[0])
    assert not np.array_equal(first, single.reset()[0])


def test_it_can_be_drawn(closes: Any) -> None:
    env = closes(make_single_environment("CartPole-v1", of_envpool(), for_scoring=True, render_mode="rgb_array"))
    env.reset(seed=0)
    picture: Any = env.render()
    assert (picture.dtype, picture.ndim, picture.shape[2]) == (np.uint8, 3, 3)


def test_atari_is_as_envpool_prepares_it() -> None:
    spec = describe_environment("Pong-v5", of_envpool(frame_stack=4))
    assert (spec.columns[0].shape, spec.observation_dtype, spec.stack) == ((4, 84, 84), "uint8", 1)
    assert describe_rewards("Pong-v5", of_envpool()).startswith("clipped")
    assert describe_rewards("CartPole-v1", of_envpool()).startswith("as the environment")


def test_its_experience_is_not_that_of_the_same_id_in_gymnasium() -> None:
    here, there = (
        describe_environment("CartPole-v1", each).fingerprint for each in (of_envpool(), EnvironmentParameters())
    )
    assert here != there
    assert describe_environment_apart("CartPole-v1", of_envpool(), tried=True).fingerprint == here


@pytest.mark.parametrize(
    ("environment_id", "settings", "said"),
    [
        ("ALE/Pong-v5", {}, "did you mean Pong-v5"),
        ("CartPole-v1", {"kwargs": {"seed": 3}}, "may not set 'seed', which rljob decides"),
        ("CartPole-v1", {"kwargs": {"sped": 3}}, "unexpected keyword argument 'sped'"),
        ("TicTacToe-v1", {}, "with 2 players; only games of one"),
        ("CartPole-v1", {"actions": (0, 2)}, r"actions \[2\] do not exist"),
    ],
)
def test_what_it_cannot_make_is_told(environment_id: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(EnvironmentProblem, match=said):
        describe_environment(environment_id, of_envpool(**settings))

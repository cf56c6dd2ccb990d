"""Every backend keeps the rules, and the conformance check notices broken ones."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from rljob.api import EnvironmentParameters
from rljob.envs import StepResult, make_vector_environment
from rljob.envs.gymnasium_vector import GymnasiumVector

from tests.support.vector_rules import NonConforming, check_environment


def short(*, actions: tuple[int, ...] = (), **atari: Any) -> dict[str, Any]:
    """Settings of short Atari games."""
    return {"max_episode_raw_frames": 240, "actions": actions, "atari": {"noop_max": 5, **atari}}


@pytest.mark.parametrize(
    ("environment_id", "backend", "settings", "ends"),
    [
        ("CartPole-v1", "Native", {}, 20),
        ("CartPole-v1", "Sync", {}, 20),
        ("CartPole-v1", "Async", {}, 20),
        ("ALE/Pong-v5", "Native", short(actions=(0, 2, 3), frame_size=42), 6),
        ("ALE/Breakout-v5", "Native", short(sticky_action_probability=0.25, fire_reset=True), 6),
        ("ALE/Breakout-v5", "Sync", short(max_pool=False), 6),
        ("ALE/Pong-v5", "Async", short(full_action_space=True), 6),
        ("tests.support.toys:countdown", "Auto", {"kwargs": {"length": 4}}, 40),
        ("tests.support.toys:Pictures", "Async", {}, 40),
        ("tests.support.registered:Countdown-v0", "Sync", {"kwargs": {"length": 4}}, 40),
        ("tests.support.registered:Countdown-v0", "Async", {"kwargs": {"length": 4}}, 40),
        (
            "OnRequest-v0",
            "Async",
            {"register_functions": ["tests.support.registering:on_request"], "kwargs": {"length": 4}},
            40,
        ),
        ("tests.support.toys:vector", "Auto", {}, 40),
        ("tests.support.toys:vector", "Native", {"kwargs": {"mode": "Disabled"}, "actions": (1, 2)}, 40),
        ("tests.support.toys:vector_only", "Auto", {}, 40),
        ("gymnasium.envs.classic_control:CartPoleEnv", "Async", {"kwargs": {"sutton_barto_reward": True}}, 20),
        ("MountainCar-v0", "Auto", {}, 0),
        ("LunarLander-v3", "Async", {}, 2),
    ],
)
def test_every_backend_conforms(environment_id: str, backend: str, settings: dict[str, Any], ends: int) -> None:
    parameters = EnvironmentParameters(backend=backend, **settings)
    assert check_environment(lambda: make_vector_environment(environment_id, parameters, 3, 0), steps=180) >= ends


def _broken(change: Any) -> Any:
    """A CartPole whose step results pass through ``change``."""

    def make() -> GymnasiumVector:
        env = make_vector_environment("CartPole-v1", EnvironmentParameters(), 2, 0)
        original = env.step

        def step(actions: Any) -> StepResult:
            return change(original(actions))

        env.step = step  # type: ignore[method-assign]
        return env

    return make


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda r: dataclasses.replace(r, observation=r.observation[:, 0]), "step() observes"),
        (lambda r: dataclasses.replace(r, reward=r.reward.astype(np.float64)), "reward is float32"),
        (lambda r: dataclasses.replace(r, truncated=r.terminated.copy()), "not both"),
        (lambda r: dataclasses.replace(r, final_observation=None), "final observation"),
        (lambda r: dataclasses.replace(r, final_observation=r.observation), "None without an end"),
        (lambda r: dataclasses.replace(r, life_lost=r.terminated.copy()), "a life is lost"),
        (lambda r: dataclasses.replace(r, episodes=()), "one record"),
        (lambda r: dataclasses.replace(r, reward=r.reward + np.float32(np.random.rand())), "decide everything"),
        (
            lambda r: dataclasses.replace(
                r, episodes=tuple(dataclasses.replace(e, length_steps=e.length_steps + 1) for e in r.episodes)
            ),
            "without dummy steps",
        ),
    ],
)
def test_the_check_notices_each_broken_rule(change: Any, rule: str) -> None:
    with pytest.raises(NonConforming) as caught:
        check_environment(_broken(change), steps=100)
    assert rule in str(caught.value)

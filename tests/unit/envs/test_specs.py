"""Descriptions: shapes, casts, stacks and the identity of experience; and functions that register what is described."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from rljob.api import EnvironmentParameters
from rljob.api.environment import EnvironmentSource
from rljob.envs import (
    EnvironmentProblem,
    describe_both,
    describe_environment,
    describe_environment_apart,
    describe_rewards,
    make_single_environment,
    make_vector_environment,
)
from rljob.envs.meter import AtariCounters, EpisodeMeter
from rljob.envs.spaces import observation_leaves

from tests.support import registering


@pytest.mark.parametrize(
    ("environment_id", "settings", "shape", "dtype", "stack", "actions", "skip"),
    [
        ("ALE/Pong-v5", {"atari": {"frame_size": 42}, "actions": (0, 2, 3)}, (42, 42), "uint8", 4, 3, 4),
        (
            "ALE/Pong-v5",
            {"atari": {"full_action_space": True, "frame_skip": 2}, "frame_stack": 2},
            (84, 84),
            "uint8",
            2,
            18,
            2,
        ),
        ("CartPole-v1", {}, (4,), "float32", 1, 2, 1),
        ("tests.support.toys:countdown", {}, (2,), "float32", 1, 3, 1),  # float64 is cast
        ("tests.support.registered:Unversioned", {}, (2,), "float32", 1, 3, 1),  # an id without a version
        ("gymnasium.envs.classic_control:CartPoleEnv", {}, (4,), "float32", 1, 2, 1),
        ("tests.support.toys:Pictures", {"frame_stack": 3}, (18, 16), "uint8", 3, 3, 1),
        ("tests.support.toys:Pictures", {"frame_stack": 1, "actions": (2,)}, (18, 16), "uint8", 1, 1, 1),
        ("tests.support.toys:vector_only", {"actions": (2, 0)}, (2,), "float32", 1, 2, 1),
    ],
)
def test_spec(
    environment_id: str, settings: dict[str, Any], shape: Any, dtype: str, stack: int, actions: int, skip: int
) -> None:
    spec = describe_environment(environment_id, EnvironmentParameters(**settings))
    assert (spec.columns[0].shape, spec.observation_dtype, spec.stack) == (shape, dtype, stack)
    numbers = (spec.num_actions, spec.raw_frames_per_step, spec.row_bytes)
    assert numbers == (actions, skip, np.zeros(shape, dtype).nbytes)


def test_the_fingerprint_is_of_the_experience() -> None:
    base = EnvironmentParameters()
    prints = {
        name: describe_environment("CartPole-v1", parameters).fingerprint
        for name, parameters in {
            "base": base,
            "other backend": base.updated(backend="Sync"),
            "other input": base.updated(centre_input=True),
            "other skip": base.updated(atari={"frame_skip": 3}),
            "other kwargs": base.updated(kwargs={"sutton_barto_reward": True, "max_episode_steps": 9}),
            "another limit": base.updated(max_episode_steps=9),
            "no function that registers it": base.updated(register_functions=[]),
            "a function that registers it": base.updated(register_functions=["tests.support.registering:on_request"]),
            "the same kwargs": base.updated(kwargs={"max_episode_steps": 9, "sutton_barto_reward": True}),
        }.items()
    }
    assert prints["base"] == prints["other backend"] == prints["other input"] == prints["no function that registers it"]
    assert prints["other kwargs"] == prints["the same kwargs"], "their order says nothing"
    assert (len(set(prints.values())), len(prints["base"])) == (5, 64)
    assert describe_environment("CartPole-v0", base).fingerprint != prints["base"]


def test_pictures_are_stacked_oldest_first_over_zeros() -> None:
    env = make_single_environment("tests.support.toys:Pictures", EnvironmentParameters(frame_stack=3), for_scoring=True)
    assert [env.reset(seed=0)[0][:, 0, 0].tolist(), env.step(0)[0][:, 0, 0].tolist()] == [[0, 0, 1], [0, 1, 2]]


@pytest.mark.parametrize("backend", ["Auto", "Sync", "Async"])
@pytest.mark.parametrize(
    "environment_id", ["tests.support.reporting:Reporting", "tests.support.reporting:vector", "CartPole-v1"]
)
def test_a_limit_of_steps_truncates_and_what_the_environment_reports_is_that_of_the_last_step(
    environment_id: str, backend: str, closes: Any
) -> None:
    env = closes(
        make_vector_environment(environment_id, EnvironmentParameters(max_episode_steps=2, backend=backend), 2, 0)
    )
    env.reset()
    for _ in range(2):
        assert not env.step(np.zeros(2, np.int64)).episodes
        result = env.step(np.zeros(2, np.int64))
        assert result.truncated.all()
        assert [episode.length_steps for episode in result.episodes] == [2, 2]
        if "Pole" not in environment_id:
            assert [episode.metrics["distance"] for episode in result.episodes] == [1.0, 1.0]


def test_a_limit_of_steps_beyond_the_environments_own_changes_nothing() -> None:
    env = make_single_environment(
        "tests.support.reporting:Reporting", EnvironmentParameters(max_episode_steps=9), for_scoring=True
    )
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(4)] == [False, False, False, True]


def test_what_is_judged_in_has_to_look_the_same_to_a_network() -> None:
    training = EnvironmentSource(id="CartPole-v1")
    limited = training.model_copy(update={"max_episode_steps": 5, "kwargs": {"sutton_barto_reward": True}})
    assert describe_both(training, limited) == describe_environment("CartPole-v1", training.parameters)
    said = (
        r"^environment 'MountainCar-v0' of spec.evaluator.environment has to show and take what 'CartPole-v1' does, but there "
        r"is observation: vector float32 \[2\] where this one has observation: vector float32 \[4\]$"
    )
    with pytest.raises(EnvironmentProblem, match=said):
        describe_both(training, training.model_copy(update={"id": "MountainCar-v0"}))


CLIPPED = [
    ("tests.support.toys:countdown", "Auto", False),
    ("tests.support.toys:countdown", "Enabled", True),
    ("tests.support.toys:countdown", "Disabled", False),
    ("tests.support.toys:vector", "Auto", False),
    ("tests.support.toys:vector", "Enabled", True),
    ("CartPole-v1", "Auto", False),
    ("ALE/Pong-v5", "Auto", True),
    ("ALE/Pong-v5", "Disabled", False),
]


@pytest.mark.parametrize(("environment_id", "setting", "clipped"), CLIPPED)
def test_rewards_are_clipped_for_atari_games_or_where_asked_for(
    environment_id: str, setting: str, clipped: bool
) -> None:
    parameters = EnvironmentParameters(reward_clipping=setting)
    assert describe_rewards(environment_id, parameters) == (
        f"{'clipped to [-1, 1]' if clipped else 'as the environment gives them'} (rewardClipping: {setting})"
    )
    same, other = ("Enabled", "Disabled") if clipped else ("Disabled", "Enabled")
    asked = EnvironmentParameters(reward_clipping=same)  # what comes of it is what makes experience interchangeable
    assert (
        describe_environment(environment_id, parameters).fingerprint
        == describe_environment(environment_id, asked).fingerprint
        != describe_environment(environment_id, EnvironmentParameters(reward_clipping=other)).fingerprint
    )


@pytest.mark.parametrize("backend", ["Auto", "Sync"])
@pytest.mark.parametrize(("environment_id", "setting", "clipped"), [case for case in CLIPPED if "toys" in case[0]])
def test_what_training_sees_of_a_reward_of_two_and_a_half(
    environment_id: str, setting: str, clipped: bool, backend: str, closes: Any
) -> None:
    parameters = EnvironmentParameters(reward_clipping=setting, backend=backend)
    env = closes(make_vector_environment(environment_id, parameters, 2, seed=0))
    env.reset(seed=0)
    assert env.step(np.array([1, 0])).reward.tolist() == ([1.0, -0.5] if clipped else [2.5, -0.5])


@pytest.mark.parametrize(("for_scoring", "reward"), [(True, 2.5), (False, 1.0)])
def test_rewards_are_clipped_for_training_only(for_scoring: bool, reward: float) -> None:
    env = make_single_environment(
        "tests.support.toys:countdown", EnvironmentParameters(reward_clipping="Enabled"), for_scoring=for_scoring
    )
    env.reset(seed=0)
    assert env.step(1)[1] == reward


def test_a_way_to_draw_that_the_manifest_names_does_not_contradict_that_of_a_video(closes: Any) -> None:
    parameters = EnvironmentParameters(kwargs={"render_mode": "human"})
    env = closes(make_single_environment("CartPole-v1", parameters, for_scoring=True, render_mode="rgb_array"))
    assert env.render_mode == "rgb_array"


def test_counters_against_a_story_told_by_hand() -> None:
    """Row 0: 3 frames of start, a step of 4, a step cut after 2 by the end, a new start of 5. Row 1 loses a life."""
    counters = AtariCounters()

    def info(frames: list[int], episode: list[int], lives: list[int]) -> dict[str, Any]:
        keys = ("frame_number", "episode_frame_number", "lives")
        return {k: np.array(v, np.int32) for k, v in zip(keys, (frames, episode, lives), strict=True)}

    assert counters.begin(info([3, 0], [3, 0], [5, 3])).tolist() == [3, 0]
    step = counters.step(info([7, 4], [7, 4], [5, 2]), np.array([False, False]))
    assert (step.of_step.tolist(), step.of_reset.tolist(), step.life_lost.tolist()) == ([4, 4], [0, 0], [False, True])
    step = counters.step(info([14, 8], [5, 8], [5, 0]), np.array([True, False]))
    assert (step.of_step.tolist(), step.of_reset.tolist(), step.played.tolist()) == ([2, 4], [5, 0], [6, 8])
    assert step.life_lost.tolist() == [False, False]  # zero lives without an end is the end itself, a little later


def test_the_meter_counts_like_a_loop() -> None:
    rng = np.random.default_rng(0)
    meter, totals, records, expected = EpisodeMeter(3), [[0.0, 0, 0] for _ in range(3)], [], []
    meter.begin()
    for _ in range(200):
        reward, frames = rng.normal(size=3), rng.integers(1, 5, 3)
        terminated = rng.random(3) < 0.05
        truncated = (rng.random(3) < 0.05) & ~terminated
        records += meter.step(reward, frames, terminated, truncated, raw_frames_of_reset=2)
        for i in range(3):
            totals[i] = [totals[i][0] + reward[i], totals[i][1] + 1, totals[i][2] + int(frames[i])]
            if terminated[i] or truncated[i]:
                expected.append((i, *totals[i], bool(truncated[i])))
                totals[i] = [0.0, 0, 2]
    assert len(expected) > 20
    assert [(r.environment, r.game_return, r.length_steps, r.raw_frames, r.truncated) for r in records] == expected


# ``environment.register``: functions that register ids, for packages that do so only when they are asked.


def asked(*functions: str, **settings: Any) -> EnvironmentParameters:
    return EnvironmentParameters(register_functions=list(functions), **settings)


def test_a_function_registers_the_id_and_is_called_once() -> None:
    parameters = asked("tests.support.registering:on_request", kwargs={"length": 4})
    for _ in range(2):
        assert describe_environment("OnRequest-v0", parameters).observation_shape == (1, 2)
    assert registering.calls.count("on_request") == 1


def test_a_file_registers_too_and_is_tried_in_a_process_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "registers_a_game.py"
    file.write_text(
        "import os, gymnasium\n\n\ndef register():\n    print(os.getpid(), file=open(__file__ + '.pid', 'w'))\n"
        "    gymnasium.register('OfAFile-v0', 'tests.support.toys:Countdown')\n"
    )
    assert describe_environment_apart("OfAFile-v0", asked(f"{file}:register"), tried=True).num_actions == 3
    assert Path(f"{file}.pid").exists()
    with pytest.raises(EnvironmentProblem, match="is not known"):  # in this process nothing was called
        describe_environment("OfAFile-v0", EnvironmentParameters())


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("tests.support.registering:broken", "failed: registering.py:.*FileNotFoundError: levels.zip is missing"),
        ("tests.support.registering:on_reqest", "did you mean on_request"),
        ("no_such_module:register", "module 'no_such_module' cannot be imported"),
    ],
)
def test_a_function_that_fails_is_named(function: str, said: str) -> None:
    with pytest.raises(EnvironmentProblem, match=rf"environment\.register: '{function}'.* ?{said}"):
        describe_environment("CartPole-v1", asked(function))


def test_a_leaf_of_the_masks_name_and_size_is_the_mask_whatever_its_numbers_are() -> None:
    for mask in (spaces.Box(0, 1, (3,), np.float32), spaces.MultiBinary(3), spaces.MultiDiscrete([2, 2, 2])):
        shown = spaces.Dict({"action_mask": mask, "seen": spaces.Box(0, 1, (3,), np.float32)})
        assert [leaf.role for leaf in observation_leaves("it", shown, {}, 3, masked_by_info=False)] == [
            "mask",
            "vector",
        ]

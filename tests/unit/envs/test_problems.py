"""What cannot be made says why, and what would be right, in its first line."""

import pickle
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from rljob.algorithms.suits import check_suits
from rljob.api import EnvironmentParameters
from rljob.api.networks import NetworkProblem
from rljob.envs import (
    EnvironmentProblem,
    describe_environment,
    make_single_environment,
    make_vector_environment,
)
from rljob.envs.spaces import checked_actions

from tests.support.every_space import OBSERVATIONS
from tests.support.jobs import job_of

EVERY = "tests.support.every_space:EverySpace"


@pytest.mark.parametrize(
    ("environment_id", "settings", "said"),
    [
        ("ALE/Png-v5", {}, "did you mean ALE/Pong-v5"),
        ("Pnog", {}, "Pong-v"),
        ("CartPole-v9", {}, "CartPole-v1"),
        ("no_such_module:make", {}, "module 'no_such_module' cannot be imported"),
        ("tests.support.toys:countdwn", {}, "did you mean countdown"),
        ("tests.support.toys:broken", {}, "FileNotFoundError: plant.xml is missing"),
        ("tests.support.toys:not_an_environment", {}, "it must return a gymnasium.Env"),
        ("tests.support.toys:countdown", {"kwargs": {"speed": 3}}, "unexpected keyword argument 'speed'"),
        (
            "CartPole-v1",
            {"leaves": {"observation": "picture"}},
            "environment.leaves takes image, vector, index, mask, critic",
        ),
        (
            "CartPole-v1",
            {"leaves": {"pole": "vector"}},
            "environment.leaves names 'pole'; its observation has observation",
        ),
        ("CartPole-v1", {"leaves": {"observation": "index"}}, "can't be an index: its numbers are float32"),
        ("CartPole-v1", {"leaves": {"observation": "image"}}, "can't be an image: its shape is (4,)"),
        ("CartPole-v1", {"leaves": {"observation": "mask"}}, "is a mask of 4, but there are 2 actions to allow"),
        (
            "tests.support.toys:countdown",
            {"kwargs": {"bad": "continuous"}, "actions": (0,)},
            "can name some of one Discrete",
        ),
        (
            "gymnasium.envs.classic_control:CartPoleEnv",
            {"kwargs": {"suton": 1}},
            "no argument 'suton'; it has sutton_b",
        ),
        ("tests.support.toys:Countdown", {"kwargs": {"lenght": 3}}, "no argument 'lenght'; did you mean 'length'?"),
        ("tests.support.toys:LosesRewards", {}, "kwargs: the factory needs env"),
        ("game.py", {}, "a file is named with its function, game.py:make"),
        ("gone.py:make", {}, "gone.py: there is no such file, and no module 'gone' that can be imported in its place"),
        ("gymnasium.envs.classic_control:cartpole", {}, "has no callable 'cartpole': it is a module"),
        ("tests.support.registering:OnRequest-v9", {}, "where a function of tests.support.registering registers it"),
        ("ALE/Pong-v5", {"actions": (0, 9)}, "actions [9] do not exist; it has 6"),
        ("ALE/Pong-v5", {"kwargs": {"frameskip": 2}}, "set the parameter atari.frameSkip"),
    ],
)
def test_the_first_line_says_it(environment_id: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(EnvironmentProblem) as caught:
        describe_environment(environment_id, EnvironmentParameters(**settings))
    first_line = str(caught.value).splitlines()[0]
    assert [words for words in (said, environment_id) if words not in first_line] == []


@pytest.mark.parametrize(
    ("algorithm", "environment", "said"),
    [
        (
            "IMPALA",
            {"id": "CartPole-v1", "leaves": {"observation": "critic"}},
            "no leaf of the observation is left for a policy to see",
        ),
        (
            "ApeXDQN",
            {"id": "Pendulum-v1"},
            "there are continuous actions: action: Box float32 [1] from -2 to 2; IMPALA and PPO take both",
        ),
        ("ApeXDQN", {"id": "tests.support.toys:countdown", "kwargs": {"bad": "continuous"}}, "from -1 to 1"),
        (
            "ApeXDQN",
            {"id": "FrozenLake-v1", "centreInput": True},
            "the mean of one image or vector, but observation: index int64 []",
        ),
        (
            "ApeXDQN",
            {"id": EVERY, "kwargs": {"observation": "dict"}, "centreInput": True},
            "centreInput subtracts the mean of one image or vector, but far: vector float32 [2]; near: index int64 []",
        ),
        (
            "ApeXDQN",
            {"id": "CartPole-v1", "leaves": {"observation": "critic"}},
            "no value beside its policy, which alone could see the leaf observation (role critic)",
        ),
    ],
)
def test_what_an_algorithm_cannot_be_trained_in_is_told(algorithm: str, environment: dict[str, Any], said: str) -> None:
    """As ``rljob run`` and a learner look at a job before its first step."""
    job = job_of({"algorithm": {"type": algorithm}, "environment": environment})
    spec = describe_environment(job.spec.environment.id, job.spec.environment.parameters)
    with pytest.raises(NetworkProblem, match=rf"^environment {environment['id']!r}: .*{re.escape(said)}"):
        check_suits(job, spec)


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (spaces.Dict({}), "observation space is an empty Dict"),
        (spaces.Tuple(()), "observation space is an empty Tuple"),
        (
            spaces.Dict({f"camera{number}": spaces.Box(0, 255, (16, 16), np.uint8) for number in range(5)}),
            "leaf 'camera4' is image number 5; 4 are supported",
        ),
    ],
)
def test_an_observation_of_nothing_and_one_of_too_much_are_told(
    space: spaces.Space[Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OBSERVATIONS, "odd", space)
    with pytest.raises(EnvironmentProblem, match=said):
        describe_environment(EVERY, EnvironmentParameters(kwargs={"observation": "odd"}))


@pytest.mark.parametrize(
    ("environment_id", "settings", "said"),
    [
        ("MountainCar-v0", {}, "it registers no vector_entry_point"),
        ("ALE/Pong-v5", {"kwargs": {"difficulty": 1}}, "ALE's vector environment"),
        ("tests.support.toys:countdown", {}, "its factory takes no num_envs"),
        ("CartPole-v1", {"max_episode_steps": 9}, "not after maxEpisodeSteps"),
        ("tests.support.toys:vector_only", {"max_episode_steps": 9}, "not after maxEpisodeSteps"),
        ("tests.support.toys:vector", {"kwargs": {"mode": "NextStep"}}, "dummy step between episodes"),
    ],
)
def test_native_is_refused_where_it_would_not_be_exact(
    environment_id: str, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(EnvironmentProblem, match=said.replace("(", r"\(")):
        make_vector_environment(environment_id, EnvironmentParameters(backend="Native", **settings), 2, 0)


def test_auto_falls_back_where_native_is_not_exact() -> None:
    make_vector_environment("ALE/Pong-v5", EnvironmentParameters(kwargs={"difficulty": 1}), 2, 0).close()


def test_a_missing_rom_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    with pytest.raises(EnvironmentProblem, match=r"pip install --force-reinstall ale-py.*unset ALE_ROMS_DIR"):
        describe_environment("ALE/Pong-v5", EnvironmentParameters())


@pytest.mark.parametrize(
    ("environment_id", "backend", "module", "extra"),
    [
        ("LunarLander-v3", "Auto", "Box2D", "box2d"),
        ("HalfCheetah-v5", "Auto", "mujoco", "mujoco"),
        ("CarRacing-v3", "Auto", "pygame", "video"),
        ("CartPole-v1", "EnvPool", "envpool", "envpool"),
    ],
)
def test_a_package_that_an_environment_or_a_backend_needs_is_named_with_our_extra(
    environment_id: str, backend: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [
        name for name in sys.modules if f"{name}.".startswith(("gymnasium.envs.box2d.", "gymnasium.envs.mujoco."))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)  # an import of it then fails
    with pytest.raises(EnvironmentProblem, match=rf"this install lacks: pip install 'rljob\[{extra}\]'$"):
        describe_environment(environment_id, EnvironmentParameters(backend=backend))


def test_a_vector_only_factory_cannot_be_scored() -> None:
    with pytest.raises(EnvironmentProblem, match="give num_envs a default"):
        make_single_environment("tests.support.toys:vector_only", EnvironmentParameters(), for_scoring=True)


def test_a_problem_survives_pickling_with_its_index() -> None:
    problem = pickle.loads(pickle.dumps(EnvironmentProblem("fire", environment=3)))
    assert (str(problem), problem.environment) == ("fire", 3)


@pytest.mark.parametrize(
    "actions", [np.array([0, 3]), np.array([-1, 0]), np.array([0]), np.array([0.0, 1.0]), np.array([[0, 1]])]
)
def test_wrong_actions_are_refused(actions: Any) -> None:
    with pytest.raises(ValueError, match="actions must"):
        checked_actions(actions, num_envs=2, sizes=(3,))


@pytest.mark.parametrize(
    ("body", "said"),
    [("    return gymnasium.Env\n", "the class Env, not an object of it"), ("    pass\n", "returned None;")],
)
def test_what_a_factory_gives_instead_is_named(tmp_path: Path, body: str, said: str) -> None:
    file = tmp_path / f"given_{len(body)}.py"
    file.write_text(f"import gymnasium\n\n\ndef make():\n{body}")
    with pytest.raises(EnvironmentProblem, match=said):
        describe_environment(f"{file}:make", EnvironmentParameters())

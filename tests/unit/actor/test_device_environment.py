"""A simulator's arrays come as tensors on its device without a copy, and what is wrong with them is said by name."""

from typing import Any

import numpy as np
import pytest
import torch
from rljob.actor.device import DeviceEnvironment
from rljob.api import EnvironmentParameters
from rljob.envs import EnvironmentProblem, describe_environment, make_device_vector, make_vector_environment
from rljob.envs.gymnasium_vector import GymnasiumVector

CLOCKS = "tests.support.device_games:clocks"


def made(num_envs: int = 3, **settings: Any) -> DeviceEnvironment:
    parameters = EnvironmentParameters(**settings)
    return DeviceEnvironment(make_device_vector(describe_environment(CLOCKS, parameters), parameters, num_envs), seed=4)


def test_arrays_of_another_framework_are_the_same_memory() -> None:
    env = made()
    simulator = env._env
    assert env.device == torch.device("cpu")
    assert env.reset().tolist() == [[4.0, 0.0]] * 3, "begun with the seed, though it was tried before"
    step = env.step(torch.tensor([0, 1, 2]))
    for tensor, array in (
        (step.frames, simulator.seen),
        (step.final_frames, simulator.final),
        (step.reward, simulator.reward),
        (step.terminated, simulator.terminated),
        (step.truncated, simulator.truncated),
    ):
        assert tensor.data_ptr() == array.ctypes.data
    assert step.reward.tolist() == [-0.5, 2.5, -0.5]


def test_some_of_its_actions_alone_may_be_offered() -> None:
    env = made(actions=[1, 2])
    assert (env.spec.num_actions, env.step(torch.tensor([0, 1, 0])).reward.tolist()) == (2, [2.5, -0.5, 2.5])


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("shape", r"step: reward: expected \[3\] on cpu, got a tensor float64 \[3, 1\] on cpu"),
        ("list", r"step: terminated: expected an array that speaks DLPack, got \[False, False, False\]"),
        ("final", "step: info has no 'final_obs'"),
        ("bytes", r"step: observation: expected float32, as the plain environment has, got an array uint8 \[3, 2\]"),
        ("mode", "must reset with SAME_STEP, as its metadata's autoreset_mode says, but that is 'NextStep'"),
    ],
)
def test_what_is_wrong_with_it_is_said_before_anything_is_trained(bad: str, said: str) -> None:
    with pytest.raises(EnvironmentProblem, match=said):
        made(kwargs={"bad": bad})


def test_what_a_simulator_raises_is_told_with_its_name() -> None:
    env, actions = made(kwargs={"bad": "late"}), torch.zeros(3, dtype=torch.int64)
    env.step(actions), env.step(actions)
    with pytest.raises(EnvironmentProblem, match=r"clocks': failed in step\(\): .*RuntimeError: the plant caught fire"):
        env.step(actions)


@pytest.mark.parametrize(
    ("environment_id", "settings"),
    [
        ("CartPole-v1", {}),
        ("tests.support.toys:vector", {}),
        (CLOCKS, {"backend": "Sync"}),
    ],
)
def test_every_other_environment_is_stepped_on_the_host(environment_id: str, settings: dict[str, Any]) -> None:
    parameters = EnvironmentParameters(**settings)
    assert make_device_vector(describe_environment(environment_id, parameters), parameters, 2) is None


def test_where_arrays_must_be_the_hosts_the_plain_games_are_played() -> None:
    """With central inference, say: an inference server is sent arrays of the host."""
    env = make_vector_environment(CLOCKS, EnvironmentParameters(), 2, 0)
    assert (type(env), type(env.reset())) == (GymnasiumVector, np.ndarray)
    env.close()
    with pytest.raises(EnvironmentProblem, match="takes a device: its arrays stay there"):
        make_vector_environment(CLOCKS, EnvironmentParameters(backend="Native"), 2, 0)

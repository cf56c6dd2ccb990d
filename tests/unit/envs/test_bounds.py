"""The edge between a policy's continuous numbers and an environment's: within its bounds, whatever comes, and told."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings, strategies as st
from rljob.actor.policy import ActingPolicy
from rljob.algorithms.registry import algorithm
from rljob.api import EnvironmentParameters, ImpalaParameters
from rljob.envs import (
    EnvironmentProblem,
    VectorEnvironment,
    describe_environment,
    make_single_environment,
    make_vector_environment,
)
from rljob.envs.encoding import Encoding, at
from rljob.envs.spaces import action_leaves, bounds_in_words

from tests.support.every_space import ACTIONS, CONTINUOUS, OPEN

ID = "tests.support.every_space:EverySpace"
ENDS = (0.0, -0.0, 1.0, -1.0, 20.0, -20.0, 1e-30, -1e-30, 1e30, -1e30, float(np.finfo(np.float32).max))


@pytest.mark.parametrize("how", ["Clipped", "Squashed"])
@pytest.mark.parametrize("name", [*CONTINUOUS, *OPEN])
@settings(max_examples=50)
@given(data=st.data())
def test_whatever_a_policy_says_lies_within_the_space(name: str, how: str, data: st.DataObject) -> None:
    if name in OPEN and how == "Squashed":
        return
    env_params = EnvironmentParameters(kwargs={"action": name}, actions=how)
    spec = describe_environment(ID, env_params)
    any_number = st.sampled_from(ENDS) | st.floats(allow_nan=False, allow_infinity=False, width=32)
    control = np.array(data.draw(st.lists(any_number, min_size=spec.controls, max_size=spec.controls)), np.float32)
    chosen = spec.all_choices.uniform(1, np.random.default_rng(0))[0]
    encoding = Encoding(spec, env_params)
    taken = encoding.action({"choices": chosen, "controls": control} if spec.action_sizes else control)
    assert ACTIONS[name].contains(taken)
    rows = encoding.action(spec.all_choices.action(chosen[None], control[None]), rows=1)
    assert all(np.array_equal(at(rows, leaf)[0], at(taken, leaf)) for leaf in spec.action)
    for odd in (np.nan, np.inf, -np.inf):
        broken = np.append(control[:-1], np.float32(odd))
        with pytest.raises(ValueError, match="an action of finite numbers was expected"):
            encoding.action({"choices": chosen, "controls": broken} if spec.action_sizes else broken)


@pytest.mark.parametrize(
    ("how", "number", "taken"),
    [
        ("Clipped", 0.0, 0.0),
        ("Clipped", 0.5, 1.0),
        ("Clipped", 3.0, 2.0),
        ("Clipped", -1.0, -2.0),
        ("Squashed", 0.5, 2 * np.tanh(0.5)),
        ("Squashed", -30.0, -2.0),
    ],
)
def test_minus_one_and_one_are_the_bounds(how: str, number: float, taken: float) -> None:
    env_params = EnvironmentParameters(actions=how)
    found = Encoding(describe_environment("Pendulum-v1", env_params), env_params).action(np.array([number], np.float32))
    assert (found.dtype, found) == (np.float32, pytest.approx([taken]))


def test_an_infinite_bound_leaves_the_number_as_it_is() -> None:
    env_params = EnvironmentParameters(kwargs={"action": "one_sided"})
    encoding = Encoding(describe_environment(ID, env_params), env_params)
    for said, taken in (([7.0, -7.0, 0.5], [7.0, -7.0, 0.5]), ([-7.0, 7.0, 3.0], [0.0, 0.5, 1.0])):
        assert encoding.action(np.array(said, np.float32)) == pytest.approx(taken)


SQUASHED = EnvironmentParameters(actions="Squashed")
OPENED = "action leaf 'action' has the bound -?inf, to which a tanh can't be scaled; give the environment finite ones"


@pytest.mark.parametrize(
    ("environment_id", "env_params", "said"),
    [
        *((ID, SQUASHED.updated(kwargs={"action": name}), OPENED) for name in OPEN),
        ("CartPole-v1", SQUASHED, "SAC can't learn, is about continuous actions; this environment has action: Disc"),
        (
            "Pendulum-v1",
            EnvironmentParameters(actions=[0]),
            "can name some of one Discrete; this environment has action: Box",
        ),
    ],
)
def test_where_nothing_can_be_squashed_or_named_it_is_said(
    environment_id: str, env_params: EnvironmentParameters, said: str
) -> None:
    with pytest.raises(EnvironmentProblem, match=said):
        describe_environment(environment_id, env_params)


@pytest.mark.parametrize(
    ("space", "squashed", "said"),
    [
        (
            spaces.Box(-2, 2, (3,)),
            False,
            "actions from -2 to 2: a policy's number is scaled to them, clipped at -1 and 1 (actions: Clipped); actions: "
            "Squashed scales it by its tanh",
        ),
        (
            spaces.Box(-2, 2),
            True,
            "scaled to them, by its tanh (actions: Squashed); actions: Clipped scales it clipped at -1 and 1",
        ),
        (
            spaces.Dict({"arm": spaces.Box(0, np.inf)}),
            False,
            "action leaf arm, from 0 to inf: without two finite bounds a policy's",
        ),
        (spaces.Box(-1e9, 1e9), False, "; 0.01 of a policy is up to 1e+07 there, far from what values do"),
    ],
)
def test_bounds_are_told(space: spaces.Space[Any], squashed: bool, said: str) -> None:
    (line,) = bounds_in_words(action_leaves("odd", space), squashed=squashed)
    assert said in line
    assert list(bounds_in_words(action_leaves("odd", spaces.Discrete(3)), squashed=squashed)) == []


@pytest.fixture
def pendulums() -> Iterator[VectorEnvironment]:
    with closing(make_vector_environment("Pendulum-v1", EnvironmentParameters(backend="Sync"), 2, 1)) as env:
        yield env


def test_what_is_no_number_is_refused_before_an_environment_sees_it(pendulums: VectorEnvironment) -> None:
    pendulums.reset()
    shape = r"must be floats of shape \(2, 1\), got"
    for odd, said in (
        (np.array([[0.0], [np.nan]], np.float32), "must be finite, got nan"),
        (None, shape),
        (np.zeros((2, 2), np.float32), shape),
        (np.zeros((2, 1), np.int64), shape),
    ):
        with pytest.raises(ValueError, match=f"continuous actions {said}"):
            pendulums.step(np.zeros((2, 0), np.int64), odd)


def test_a_broken_network_is_told_and_not_played_on(pendulums: VectorEnvironment) -> None:
    """Means that are no numbers, as of weights that ran away."""
    env_params = EnvironmentParameters(backend="Sync")
    spec, method, params = describe_environment("Pendulum-v1", env_params), algorithm("IMPALA"), ImpalaParameters()
    policy = ActingPolicy(method, spec, params, env_params, 2, np.random.default_rng(0))
    policy.acting.network.policy.bias.data.fill_(np.nan)  # type: ignore[operator, union-attr]
    policy.version = 1
    decision = policy.act(pendulums.reset())
    with pytest.raises(ValueError, match="continuous actions must be finite, got nan"):
        pendulums.step(decision.action, decision.control)


def test_ways_into_the_bounds_are_not_interchangeable_and_the_first_is_as_before() -> None:
    prints = {
        str(how): describe_environment("Pendulum-v1", EnvironmentParameters(actions=how)).fingerprint
        for how in ("Clipped", "Squashed", [])
    }
    assert prints["Clipped"] == prints["[]"] != prints["Squashed"]


def test_a_users_own_loop_gives_actions_of_the_environment() -> None:
    env_params = EnvironmentParameters()
    spec = describe_environment("Pendulum-v1", env_params)
    seen = []
    for own_actions, action in ((True, 1.0), (False, 0.5)):
        env = make_single_environment("Pendulum-v1", env_params, for_scoring=True, spec=spec, own_actions=own_actions)
        with closing(env):
            env.reset(seed=1)
            assert not own_actions or env.action_space == spaces.Box(-2, 2, (1,))
            seen.append(env.step(np.array([action], np.float32))[0])
    assert np.array_equal(*seen)

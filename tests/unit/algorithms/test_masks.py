"""What a mask forbids is never taken, bootstrapped from or learned, however much the network prefers it."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rljob.actor.policy import ActingPolicy
from rljob.algorithms.apex_dqn.loss import targets
from rljob.algorithms.batches import TransitionBatch
from rljob.algorithms.registry import algorithm
from rljob.api import ApeXDQNParameters, EnvironmentParameters, ImpalaParameters
from rljob.choices import FORBIDDEN, Choices
from rljob.envs import describe_environment, make_single_environment, make_vector_environment
from rljob.evaluation.player import judged_policy
from rljob.evaluation.score import Sitting
from rljob.observation import each, zeros
from rljob.policy.edge import TensorEdge
from rljob.policy.export import Acting
from rljob.weights.flat import snapshot
from torch import Tensor, nn

from tests.support.every_space import ACTIONS, CONTINUOUS, LENGTH, OPEN

ID = "tests.support.every_space:EverySpace"
APEX = ApeXDQNParameters(hidden_units=8, evaluation_epsilon=0.5, epsilon_base=0.9, epsilon_exponent=0.0)
PARAMETERS = {"ApeXDQN": APEX, "IMPALA": ImpalaParameters(hidden_units=8, evaluation_temperature=1.0)}
CASES = [
    (kind, action)
    for kind in PARAMETERS
    for action in ACTIONS
    if action not in {**CONTINUOUS, **OPEN} or (kind == "IMPALA" and action in ("with_choices", "mixed"))
]


def preferring_the_first(kind: str, action: str) -> tuple[Any, Any, EnvironmentParameters, nn.Module]:
    """An algorithm, and a network that gives the first value of each choice, which the mask forbids, the largest number."""
    env_params = EnvironmentParameters(kwargs={"action": action, "masked": True})
    spec = describe_environment(ID, env_params)
    method = algorithm(kind)
    net = method.build(spec, PARAMETERS[kind], env_params)
    head = net.advantage if kind == "ApeXDQN" else net.policy
    with torch.no_grad():
        for begin in np.cumsum((0, *spec.action_sizes[:-1])).tolist():
            head.bias[begin] += 1e6
    return method, spec, env_params, net


@pytest.mark.parametrize(("kind", "action"), CASES)
def test_no_actor_takes_it(kind: str, action: str) -> None:
    method, spec, env_params, net = preferring_the_first(kind, action)
    policy = ActingPolicy(method, spec, PARAMETERS[kind], env_params, 4, np.random.default_rng(0))
    policy.take_slot(0, 1)
    env = make_vector_environment(ID, env_params, 4, 1)
    seen = env.reset()
    for step in range(60):  # the environment asserts it
        if step == 20:
            policy.load(snapshot(net, 1, 1, {}))
        decision = policy.act(seen)
        assert np.isfinite(decision.taken).all() or step < 20
        seen = env.step(decision.action, decision.control).observation
    env.close()


@pytest.mark.parametrize(("kind", "action"), CASES)
def test_no_scorer_and_no_exported_policy_takes_it(kind: str, action: str) -> None:
    method, spec, env_params, net = preferring_the_first(kind, action)
    envs = [make_single_environment(ID, env_params, for_scoring=True) for _ in range(2)]
    sitting = Sitting(judged_policy(method, net, PARAMETERS[kind]), envs, epsilon=0.5, spec=spec)
    for number in range(2):
        sitting.deal(number)
    for _ in range(LENGTH):
        sitting.step()
    edge = TensorEdge(spec, squashes=False) if spec.controls else None
    acting = Acting(method, net, 0, edge).eval()  # type: ignore[arg-type]
    seen, _ = envs[0].reset(seed=3)
    inputs = tuple(torch.from_numpy(array[None]) for array in seen.values())
    traced = torch.jit.trace(acting, inputs, check_trace=False)  # type: ignore[no-untyped-call]
    if not spec.controls:  # which gives actions of the environment's own space: tests/unit/policy has it play
        envs[0].step(traced(*inputs)[0].numpy()[0])
    for env in envs:
        env.close()


def test_no_bootstrap_is_taken_from_it_and_no_gradient_goes_there() -> None:
    method, spec, _, net = preferring_the_first("ApeXDQN", "discrete")
    seen = each(torch.from_numpy, zeros(spec.columns, 2))
    seen["octets"][..., spec.mask.span] = torch.tensor([0, 1, 1], dtype=torch.uint8)
    one: Tensor = torch.ones(2)
    batch = TransitionBatch(seen, seen, torch.tensor([1, 2]), 0 * one, one, one)
    for double in (True, False):
        assert (targets(net, net, batch, double=double).abs() < 1e6).all()
    loss = method.loss(APEX, net, net, batch).value
    loss.backward()
    assert torch.isfinite(torch.cat([loss.view(1), net.advantage.bias.grad])).all()


def test_the_policy_gradient_leaves_it_alone() -> None:
    method, spec, _, net = preferring_the_first("IMPALA", "discrete")
    params = PARAMETERS["IMPALA"]
    batch = method.example(spec, params, net, torch.device("cpu"))
    batch.observation["octets"][..., spec.mask.span] = torch.tensor([0, 1, 1], dtype=torch.uint8)
    batch = batch._replace(action=torch.ones_like(batch.action), log_prob=torch.full_like(batch.log_prob, -np.log(2)))
    result = method.loss(params, net, batch)
    result.value.backward()
    assert torch.isfinite(result.value)
    assert result.metrics["entropy"] <= np.log(2) + 1e-6
    first, *others = net.policy.bias.grad.abs().tolist()
    assert first == 0.0 < sum(others)


def test_every_allowed_action_is_drawn_as_often_as_any_other() -> None:
    choices = Choices((4, 3), np.tile(np.array([False, True, True, False, True, True, False]), (30_000, 1)))
    drawn = choices.uniform(30_000, np.random.default_rng(0))
    for choice, values in ((0, [1, 2]), (1, [0, 1])):
        counts = np.bincount(drawn[:, choice], minlength=4)
        assert counts[values].sum() == 30_000
        assert abs(counts[values[0]] - 15_000) < 5 * np.sqrt(30_000 / 4)
    assert choices.log_uniform(1)[0] == pytest.approx(-np.log(4))


def test_what_is_forbidden_has_no_chance() -> None:
    choices = Choices((3,), np.array([[False, True, True]]))
    log_policy = choices.log_policy(np.array([[FORBIDDEN, 1.0, 1.0]], np.float32))
    assert log_policy[0, 1:] == pytest.approx(np.log(0.5))
    samples = choices.sample(np.repeat(log_policy, 10_000, 0), np.random.default_rng(0).random((10_000, 3)))
    assert set(samples.tolist()) == {1, 2}


@pytest.mark.parametrize(
    ("space", "given", "allowed"),
    [
        (spaces.Discrete(3), np.array([0, 1, 1]), [0, 1, 1]),
        (spaces.MultiDiscrete([2, 3]), (np.array([0, 1]), np.array([1, 0, 1])), [0, 1, 1, 0, 1]),
        (spaces.MultiDiscrete([2, 3]), [0, 1, 1, 0, 1], [0, 1, 1, 0, 1]),
        (
            spaces.MultiDiscrete([[2, 2], [3, 2]]),
            ((np.array([1, 0]), np.array([0, 0])), (np.array([0, 0, 1]), np.array([1, 1]))),
            [1, 0, 1, 1, 0, 0, 1, 1, 1],
        ),
        (spaces.MultiBinary(3), np.array([0, 1, 2]), [1, 0, 0, 1, 1, 1]),
        (
            spaces.Dict({"a": spaces.Discrete(2), "b": spaces.MultiBinary(2)}),
            {"a": np.array([0, 1]), "b": np.array([0, 2])},
            [0, 1, 1, 0, 1, 1],
        ),
        (
            spaces.Tuple((spaces.Discrete(2), spaces.MultiDiscrete([2, 2]))),
            (np.array([1, 0]), (np.array([1, 1]), np.array([0, 1]))),
            [1, 0, 1, 1, 0, 1],
        ),
        (spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2))), np.array([1, 0, 0, 1]), [1, 0, 0, 1]),
    ],
)
def test_a_mask_may_have_the_form_of_its_space(
    space: spaces.Space[Any], given: Any, allowed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Gymnasium's ``sample(mask=...)`` takes it, or flat; where nothing of a choice is allowed, all is."""
    monkeypatch.setitem(ACTIONS, "formed", space)
    monkeypatch.setattr("tests.support.every_space._mask", lambda _, first_allowed: given)
    env_params = EnvironmentParameters(kwargs={"action": "formed", "masked": True}, backend="Sync")
    env = make_vector_environment(ID, env_params, 1, 1)
    assert env.spec.choices(env.reset()).allowed.astype(int).tolist() == [allowed]
    env.close()

"""What a mask forbids is never taken, bootstrapped from or learned, however much the network prefers it.

Networks that normalise what they see and what their value says: which numbers, how, and that nothing else changes.
"""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rljob.actor.policy import ActingPolicy
from rljob.algorithms.apex_dqn.loss import targets
from rljob.algorithms.batches import TransitionBatch
from rljob.algorithms.impala.loss import IMPALA
from rljob.algorithms.policy_network import PolicyConfig, PolicyNetwork
from rljob.algorithms.registry import algorithm
from rljob.algorithms.trunk import NORMALIZED_AT_MOST, STATISTICS
from rljob.api import ApeXDQNParameters, EnvironmentParameters, ImpalaParameters
from rljob.choices import FORBIDDEN, Choices
from rljob.envs import describe_environment, make_single_environment, make_vector_environment
from rljob.evaluation.player import judged_policy
from rljob.evaluation.score import Sitting
from rljob.observation import each, of_columns, zeros
from rljob.policy.edge import TensorEdge
from rljob.policy.export import Acting
from rljob.weights.flat import snapshot
from torch import Tensor, nn

from tests.support.every_space import ACTIONS, CONTINUOUS, LENGTH, OPEN
from tests.support.specs import spec_of
from tests.unit.learner.learner_builders import unroll_batches, unroll_parameters

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
def test_no_actor_takes_it(kind: str, action: str, closes: Any) -> None:
    method, spec, env_params, net = preferring_the_first(kind, action)
    policy = ActingPolicy(method, spec, PARAMETERS[kind], env_params, 4, np.random.default_rng(0))
    policy.take_slot(0, 1)
    env = closes(make_vector_environment(ID, env_params, 4, 1))
    seen = env.reset()
    for step in range(60):  # the environment asserts it
        if step == 20:
            policy.load(snapshot(net, 1, 1, {}))
        decision = policy.act(seen)
        assert np.isfinite(decision.taken).all() or step < 20
        seen = env.step(decision.action, decision.control).observation


@pytest.mark.parametrize(("kind", "action"), CASES)
def test_no_scorer_and_no_exported_policy_takes_it(kind: str, action: str, closes: Any) -> None:
    method, spec, env_params, net = preferring_the_first(kind, action)
    envs = [closes(make_single_environment(ID, env_params, for_scoring=True)) for _ in range(2)]
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
    space: spaces.Space[Any], given: Any, allowed: list[int], monkeypatch: pytest.MonkeyPatch, closes: Any
) -> None:
    """As Gymnasium's ``sample(mask=...)`` takes it, or flat; where nothing of a choice is allowed, all is."""
    monkeypatch.setitem(ACTIONS, "formed", space)
    monkeypatch.setattr("tests.support.every_space._mask", lambda _, first_allowed: given)
    env_params = EnvironmentParameters(kwargs={"action": "formed", "masked": True}, backend="Sync")
    env = closes(make_vector_environment(ID, env_params, 1, 1))
    assert env.spec.choices(env.reset()).allowed.astype(int).tolist() == [allowed]


VECTORS = spec_of("Test/Vectors-v0", (4,), "float32", 1, 2)
EVERY = "tests.support.every_space:EverySpace"


def seen_by_dense(network: PolicyNetwork, observation: Any) -> Tensor:
    """What the first dense layer sees."""
    found: list[Tensor] = []
    hook = network.dense[0].register_forward_pre_hook(lambda _, given: found.append(given[0]))
    with torch.no_grad():
        network(observation)
    hook.remove()
    return found[0]


def built(**changes: Any) -> PolicyNetwork:
    torch.manual_seed(0)
    return IMPALA().build(VECTORS, unroll_parameters(**changes), EnvironmentParameters())


def test_without_it_the_state_is_what_it_was_and_a_new_network_sees_what_there_is() -> None:
    """Mean 0 and deviation 1, until there are statistics."""
    plain, new = built(), built(normalize_observations=True, normalize_returns=True)
    assert not set(STATISTICS) & plain.state_dict().keys()
    assert set(STATISTICS) <= new.state_dict().keys()
    observation = torch.randn(6, 1, 4)
    torch.testing.assert_close(plain(observation), new(observation), rtol=0.0, atol=0.0)


def test_floats_alone_are_normalised() -> None:
    """The observation has pictures, floats, whole numbers, bits and indices, and what the value alone sees."""
    seen = EnvironmentParameters(kwargs={"observation": "nested"}, leaves={"hidden": "critic"})
    spec = describe_environment(EVERY, seen)
    network = PolicyNetwork(PolicyConfig("Auto", spec, seen, hidden=8, normalize_observations=True))
    assert {leaf.path for leaf in network.normalized} == {"body.joints", "hidden"}
    random = np.random.default_rng(0)
    observation = of_columns(spec.columns, [torch.from_numpy(each.drawn(random, 3)) for each in spec.columns])
    before = seen_by_dense(network, observation)
    raw = network.critic_row(observation)
    network.observation_mean.fill_(1.0)
    network.observation_scale.fill_(2.0)
    after = seen_by_dense(network, observation)
    (joints,) = (leaf for leaf in spec.observation if leaf.path == "body.joints")
    given = observation["vector"][:, -1, joints.span]
    changed = (before != after).any(dim=0)
    assert int(changed.sum()) == joints.size
    torch.testing.assert_close(after[:, changed], 2.0 * (given - 1.0))
    torch.testing.assert_close(network.critic_row(observation), 2.0 * (raw - 1.0))


def test_whole_numbers_beside_floats_keep_their_scale() -> None:
    seen = EnvironmentParameters(kwargs={"observation": "whole_numbers"})
    spec = describe_environment(EVERY, seen)
    network = PolicyNetwork(PolicyConfig("MLP", spec, seen, hidden=8, normalize_observations=True))
    assert (network.normalized, network.observation_mean) == ((), None)
    assert torch.equal(seen_by_dense(network, torch.full((1, 1, 2), 9.0)), torch.ones(1, 2))


def test_what_is_far_out_is_cut_off() -> None:
    network = PolicyNetwork(PolicyConfig("MLP", VECTORS, hidden=8, normalize_observations=True))
    found = seen_by_dense(network, torch.tensor([[[1e30, -1e30, 3.0, 0.0]]]))
    assert found.tolist() == [[NORMALIZED_AT_MOST, -NORMALIZED_AT_MOST, 3.0, 0.0]]


class Summing(nn.Module):
    def __init__(self, inputs: Any) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(dim=1, keepdim=True)


def test_a_network_of_one_s_own_sees_normalised_numbers() -> None:
    network = PolicyNetwork(PolicyConfig(f"{__name__}:Summing", VECTORS, hidden=8, normalize_observations=True))
    network.observation_mean.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert seen_by_dense(network, torch.tensor([[[1.0, 2.0, 3.0, 5.0]]])).tolist() == [[1.0]]


@pytest.mark.parametrize("changes", [{}, {"recurrent": "LSTM", "lstm_units": 3}, {"policy_kl_cost": 0.1}])
def test_the_loss_is_that_of_rewards_and_values_divided_by_the_scale(changes: dict[str, Any]) -> None:
    """The value itself is in the rewards' own units."""
    params, scale = unroll_parameters(normalize_returns=True, **changes), 40.0
    large, small = (built(normalize_returns=True, **changes) for _ in range(2))
    large.return_scale.fill_(scale)
    (batch,) = unroll_batches(params, 1, VECTORS)
    final = 0.1 * torch.randn(batch.reward.shape)
    batch = batch._replace(reward=scale * batch.reward, final_value=scale * final)
    divided = batch._replace(reward=batch.reward / scale, final_value=final)
    values, losses = [], []
    for network, part in ((large, batch), (small, divided)):
        values.append(network.unroll(part.observation, part.state, part.ended)[1])
        loss = IMPALA().loss(params, network, part).value
        losses.append((loss, *torch.autograd.grad(loss, list(network.parameters()))))
    torch.testing.assert_close(values[0], scale * values[1])
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("recurrent", ["None", "LSTM"])
def test_at_lag_0_the_ratio_is_1(recurrent: str) -> None:
    """What acts has the published weights, with a mask; what learns computes whole unrolls of the same version."""
    seen = EnvironmentParameters(kwargs={"observation": "dict", "masked": True})
    spec = describe_environment(EVERY, seen)
    params = unroll_parameters(normalize_observations=True, normalize_returns=True, recurrent=recurrent, lstm_units=4)
    method: Any = algorithm("IMPALA")
    online = method.build(spec, params, seen)
    online.observation_mean.fill_(1000.0)
    online.observation_scale.fill_(1e-3)
    online.return_scale.fill_(7.0)
    steps, envs, random = 6, 3, np.random.default_rng(0)
    policy = ActingPolicy(method, spec, params, seen, envs, random)
    policy.take_slot(0, 1)
    policy.load(snapshot(online, 1, 1, {}))
    drawn = {column.name: column.drawn(random, envs, steps + 1) for column in spec.columns}
    drawn["vector"] = (1000.0 + 1000.0 * drawn["vector"]).astype(np.float32)
    decisions = [policy.act({name: array[:, step] for name, array in drawn.items()}) for step in range(steps)]
    logits, values = online.unroll(
        {name: torch.from_numpy(array) for name, array in drawn.items()},
        torch.zeros(envs, 2, method.memory_units(params)),
        torch.zeros(steps, envs, dtype=torch.uint8),
    )
    actions, taken = (
        torch.from_numpy(np.stack(each)) for each in zip(*((d.action, d.taken) for d in decisions), strict=True)
    )
    again = online.choices.log_prob(online.choices.log_policy(logits), actions)
    torch.testing.assert_close(again.exp() / taken.exp(), torch.ones(steps, envs), rtol=0, atol=1e-5)
    assert values.shape == (steps + 1, envs)

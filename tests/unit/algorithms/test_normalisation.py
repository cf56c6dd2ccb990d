"""Networks that normalise what they see and what their value says: which numbers, how, and that nothing else changes."""

from typing import Any

import numpy as np
import pytest
import torch
from rljob.actor.policy import ActingPolicy
from rljob.algorithms.impala.loss import IMPALA
from rljob.algorithms.policy_network import PolicyConfig, PolicyNetwork
from rljob.algorithms.registry import algorithm
from rljob.algorithms.trunk import NORMALIZED_AT_MOST, STATISTICS
from rljob.api import EnvironmentParameters
from rljob.envs import describe_environment
from rljob.observation import of_columns
from rljob.weights.flat import snapshot
from torch import Tensor, nn

from tests.support.specs import spec_of
from tests.unit.learner.learner_builders import unroll_batches, unroll_parameters

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
    for network, each in ((large, batch), (small, divided)):
        values.append(network.unroll(each.observation, each.state, each.ended)[1])
        loss = IMPALA().loss(params, network, each).value
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

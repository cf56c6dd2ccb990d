"""Unrolls of a policy that is versions behind, through the real acting, recording and loss, against float64 arithmetic."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from rljob.actor.policy import Policy
from rljob.algorithms import algorithm
from rljob.api import EnvironmentParameters, ImpalaParameters
from rljob.envs import describe_environment, make_vector_environment
from rljob.experience import make_builder
from rljob.learner.staging import unroll_buffers
from rljob.weights.flat import snapshot
from torch import nn

from tests.unit.algorithms.test_vtrace import by_definition

CPU = torch.device("cpu")
NUM_ENVS, LENGTH = 3, 12


def moved(network: nn.Module, seed: int) -> nn.Module:
    """A copy some updates later: every weight elsewhere."""
    later, random = copy.deepcopy(network), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in later.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=random)
    return later


@pytest.mark.parametrize("corrected", [True, False])
def test_ratios_are_of_the_policy_that_learns_to_the_one_that_acted(corrected: bool) -> None:
    params = ImpalaParameters(
        network="MLP", hidden_units=16, unroll_length=LENGTH, batch_size=NUM_ENVS, precision="FP32",
        gamma=0.9, correct_off_policy=corrected,
    )  # fmt: skip
    env_params = EnvironmentParameters(reward_clipping="Disabled")
    method, spec = algorithm("IMPALA"), describe_environment("CartPole-v1", env_params)
    torch.manual_seed(0)
    first = method.build(spec, params, env_params)
    acted = [moved(first, 1), moved(first, 2)]  # newer weights arrive in the middle of the unroll
    current = moved(first, 3)
    policy = Policy(method, spec, params, env_params, NUM_ENVS, np.random.default_rng(0))
    builder = make_builder(method.layout(spec, params), NUM_ENVS, params.gamma, False, "a", "i", 1)
    environment = make_vector_environment("CartPole-v1", env_params, NUM_ENVS, 0)
    observation = environment.reset()
    builder.begin(observation)
    seen, unrolls = [], []
    for step in range(LENGTH + 1):
        if step in (0, 5):
            policy.load(snapshot(acted[step // 5], 1 + step, 1, {}))
        decision = policy.act(observation)
        result = environment.step(decision.action)
        seen.append((observation, decision.action, result.reward, result.terminated))
        unrolls += builder.record(decision, result, None)
        observation = result.observation
    buffers = unroll_buffers(method.layout(spec, params), NUM_ENVS, 1, CPU)
    staging = buffers.take()
    assert staging is not None
    staging.fill(unrolls)
    batch, _ = buffers.upload(staging)
    assert staging.policy_version[:, 0].tolist() == [1] * 5 + [6] * (LENGTH - 5)

    def exact(network: nn.Module, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            output = network(torch.as_tensor(at))
        return output.logits.double().log_softmax(1).numpy(), output.value.double().numpy()

    rows = np.arange(NUM_ENVS)
    log_pi, log_mu = (np.zeros((LENGTH, NUM_ENVS)) for _ in range(2))
    values, entropy = np.zeros((LENGTH + 1, NUM_ENVS)), 0.0
    for t, (shown, action, _, _) in enumerate(seen):
        log_policy, values[t] = exact(current, shown)
        if t < LENGTH:
            log_pi[t] = log_policy[rows, action]
            log_mu[t] = exact(acted[0 if t < 5 else 1], shown)[0][rows, action]
            entropy -= (np.exp(log_policy) * log_policy).sum()
    reward = np.stack([step[2] for step in seen[:LENGTH]]).astype(np.float64)
    discount = np.where(np.stack([step[3] for step in seen[:LENGTH]]), 0.0, params.gamma)
    ratio = log_pi - log_mu
    assert np.abs(ratio).max() > 0.3, "the policies differ, or nothing would be tested"
    target, advantage = by_definition(
        ratio if corrected else np.zeros_like(ratio), discount, reward, values[:-1], values[-1], 1.0, 1.0, 1.0
    )
    expected = -(log_pi * advantage).sum() + 0.5 * params.value_cost * ((target - values[:-1]) ** 2).sum()
    found = method.loss(params, current, batch)
    assert found.value.item() == pytest.approx(expected - params.entropy_cost * entropy, rel=1e-4)
    environment.close()

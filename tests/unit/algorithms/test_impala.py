"""The actor-critic: acting, memory, and its loss against a slow reference."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from rljob.algorithms import algorithm
from rljob.algorithms.batches import UnrollBatch
from rljob.algorithms.impala import IMPALA
from rljob.algorithms.policy_network import PolicyNetwork
from rljob.api import ApeXDQNParameters, EnvironmentParameters, ImpalaParameters
from rljob.choices import Choices
from rljob.envs.spec import EnvironmentSpec
from rljob.learner.optim.updater import trial_update

from tests.support.specs import spec_of

METHOD = IMPALA()

VECTORS = spec_of("Test/Vectors-v0", (4,), "float32", 1, 3, 1, "f")
IMAGES = spec_of("Test/Images-v0", (42, 42), "uint8", 4, 3, 4, "g")
ENVIRONMENT = EnvironmentParameters()
CHOICES = Choices((3,))


def parameters(**changes: Any) -> ImpalaParameters:
    values = {"network": "MLP", "hidden_units": 8, "unroll_length": 5, "batch_size": 4, "precision": "FP32"}
    return ImpalaParameters.model_validate({**values, **changes})


def network(params: ImpalaParameters, spec: EnvironmentSpec = VECTORS, seed: int = 0) -> PolicyNetwork:
    torch.manual_seed(seed)
    return METHOD.build(spec, params, ENVIRONMENT)


def batch(params: ImpalaParameters, seed: int = 1) -> UnrollBatch:
    random = torch.Generator().manual_seed(seed)
    steps, unrolls = params.unroll_length, params.batch_size

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random)

    discount = torch.full((steps, unrolls), params.gamma)
    discount[torch.rand(steps, unrolls, generator=random) < 0.2] = 0.0
    units = params.lstm_units if params.recurrent == "LSTM" else 0
    return UnrollBatch(
        observation=normal(unrolls, steps + 1, 1, 4),
        action=torch.randint(0, 3, (steps, unrolls), generator=random),
        reward=normal(steps, unrolls),
        discount=discount,
        log_prob=-normal(steps, unrolls).abs() - 0.1,
        final_value=normal(steps, unrolls) * (discount == 0),
        state=normal(unrolls, 2, units),
    )


def test_sampling_follows_the_policy_and_says_how_probable_it_was() -> None:
    logits = np.log(np.array([0.7, 0.2, 0.1]))
    outputs = np.tile(np.append(logits, 3.5), (20_000, 1)).astype(np.float32)
    decision = METHOD.decide(outputs, 0.0, np.random.default_rng(0), CHOICES)
    shares = np.bincount(decision.action, minlength=3) / len(outputs)
    np.testing.assert_allclose(shares, [0.7, 0.2, 0.1], atol=0.01)
    np.testing.assert_allclose(decision.taken, logits[decision.action], rtol=1e-5)
    assert set(decision.value.tolist()) == {3.5}
    generators = [np.random.default_rng(5), np.random.default_rng(5)]
    METHOD.decide(outputs, 0.0, generators[0], CHOICES)
    METHOD.decide(-outputs, 0.0, generators[1], CHOICES)
    assert generators[0].random() == generators[1].random()  # it advances alike whatever comes out


def test_without_weights_actions_are_uniform_and_say_so() -> None:
    decision = METHOD.random_decision(1000, Choices((4,)), np.random.default_rng(0))
    assert decision.taken[0] == pytest.approx(-math.log(4))
    assert np.isnan(decision.value).all()
    assert set(decision.action.tolist()) == {0, 1, 2, 3}


class Seat:
    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.memory: Any = None


@pytest.mark.parametrize("recurrent", ["None", "LSTM"])
def test_judged_games_do_not_depend_on_their_neighbours(recurrent: str) -> None:
    params = parameters(recurrent=recurrent, lstm_units=6, evaluation_temperature=0.5)
    net = network(params)
    frames = np.random.default_rng(0).normal(size=(6, 3, 1, 4)).astype(np.float32)
    together = [Seat(game) for game in range(3)]
    joint = np.array([METHOD.evaluation_action(params, net, frames[t], together) for t in range(6)])
    for game in range(3):
        seat = Seat(game)
        alone = [int(METHOD.evaluation_action(params, net, frames[t, game : game + 1], [seat])[0]) for t in range(6)]
        assert alone == joint[:, game].tolist()


def test_temperature_zero_takes_the_most_probable_action() -> None:
    params = parameters(evaluation_temperature=0.0)
    net = network(params)
    observation = np.random.default_rng(0).normal(size=(50, 1, 4)).astype(np.float32)
    seats = [Seat(1) for _ in range(50)]
    best = net(torch.from_numpy(observation)).logits.argmax(1).numpy()
    assert np.array_equal(METHOD.evaluation_action(params, net, observation, seats), best)


def test_an_unroll_with_memory_is_its_steps_with_the_memory_cleared_between_episodes() -> None:
    params = parameters(recurrent="LSTM", lstm_units=6)
    net, given = network(params), batch(params)
    logits, values = net.unroll(given.observation, given.state, given.discount)
    state = given.state
    for t in range(params.unroll_length + 1):
        output = net(given.observation[:, t], state)
        torch.testing.assert_close(values[t], output.value)
        if t < params.unroll_length:
            torch.testing.assert_close(logits[t], output.logits)
            state = output.state.clone()
            state[given.discount[t] == 0] = 0.0


@pytest.mark.parametrize("reduction", ["Sum", "Mean"])
@pytest.mark.parametrize("corrected", [True, False])
def test_the_vtrace_loss_is_written_out_step_by_step(reduction: str, corrected: bool) -> None:
    params = parameters(
        loss_reduction=reduction, correct_off_policy=corrected, entropy_cost=0.02, value_cost=0.7, policy_kl_cost=0.3
    )
    net, given = network(params), batch(params)
    found = METHOD.loss(params, net, given)
    steps, unrolls = given.action.shape
    total = torch.zeros(())
    advantages_of, targets_of, values_of = [], [], []
    for b in range(unrolls):
        outputs = [net(given.observation[b : b + 1, t]) for t in range(steps + 1)]
        policies = [torch.log_softmax(output.logits[0], 0) for output in outputs]
        values = [output.value[0] for output in outputs]
        detached = [value.item() for value in values]
        rewards = [(given.reward[t, b] + params.gamma * given.final_value[t, b]).item() for t in range(steps)]
        ahead = detached[steps]
        targets, advantages = [0.0] * steps, [0.0] * steps
        for t in reversed(range(steps)):
            ratio = math.exp(policies[t][given.action[t, b]].item() - given.log_prob[t, b].item()) if corrected else 1.0
            clipped, discount = min(1.0, ratio), given.discount[t, b].item()
            advantages[t] = clipped * (rewards[t] + discount * ahead - detached[t])
            delta = clipped * (rewards[t] + discount * detached[t + 1] - detached[t])
            ahead = targets[t] = detached[t] + delta + discount * clipped * (ahead - detached[t + 1])
        for t in range(steps):
            entropy = -(policies[t].exp() * policies[t]).sum()
            total = total - policies[t][given.action[t, b]] * advantages[t] - 0.02 * entropy
            total = total + 0.7 * 0.5 * (targets[t] - values[t]) ** 2
            total = total + 0.3 * 0.5 * (policies[t][given.action[t, b]] - given.log_prob[t, b]) ** 2
        advantages_of.append(advantages)
        targets_of.append(targets)
        values_of.append(detached[:-1])
    expected = total if reduction == "Sum" else total / (steps * unrolls)
    error = np.array(targets_of) - np.array(values_of)
    assert found.metrics["value"].item() == pytest.approx(np.mean(values_of), rel=1e-4)
    assert found.metrics["advantage_std"].item() == pytest.approx(np.std(advantages_of), rel=1e-4)
    explained = max(-1.0, 1.0 - error.var() / np.var(targets_of))
    assert found.metrics["explained_variance"].item() == pytest.approx(explained, rel=1e-3)
    assert found.value.item() == pytest.approx(expected.item(), rel=1e-4)
    gradient = torch.autograd.grad(found.value, list(net.parameters()))
    reference = torch.autograd.grad(expected, list(net.parameters()))
    for mine, its in zip(gradient, reference, strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["Nature", "Deep", "Compact"])
def test_image_networks_act_and_judge_unrolls_alike(kind: str) -> None:
    params = parameters(network=kind, hidden_units=16, layer_norm=True, orthogonal_init=True)
    net = network(params, IMAGES)
    frames = torch.randint(0, 256, (2, 3, 4, 42, 42), dtype=torch.uint8)
    logits, values = net.unroll(frames, net.initial_state(2), torch.ones(2, 2))
    assert (logits.shape, values.shape) == ((2, 2, 3), (3, 2))
    torch.testing.assert_close(values[2], net(frames[:, 2]).value, rtol=1e-4, atol=1e-5)


def test_impossible_networks_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 36x36"):
        network(parameters(network="Nature"), VECTORS)


def test_the_registry_says_what_the_loops_need() -> None:
    method = algorithm("IMPALA")
    params = parameters(recurrent="LSTM", lstm_units=6)
    assert method.memory_units(params) == 6
    assert algorithm("ApeXDQN").memory_units(ApeXDQNParameters()) == 0
    net = network(params)
    before = torch.get_rng_state()
    part = method.example(VECTORS, params, net, torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), before)
    trial_update(method, params, net, part)

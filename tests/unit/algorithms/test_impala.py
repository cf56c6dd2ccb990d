"""The actor-critic: acting, memory, and its loss against a slow reference."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from rljob.algorithms.impala.loss import IMPALA
from rljob.algorithms.policy_network import PolicyNetwork
from rljob.algorithms.registry import algorithm
from rljob.api import ApeXDQNParameters, EnvironmentParameters, ImpalaParameters
from rljob.choices import Choices
from rljob.envs.spec import EnvironmentSpec
from rljob.learner.optim.updater import trial_update

from tests.support.specs import spec_of
from tests.unit.algorithms.test_vtrace import by_definition
from tests.unit.learner.learner_builders import unroll_parameters, unrolls_with_ends

METHOD = IMPALA()

VECTORS = spec_of("Test/Vectors-v0", (4,), "float32", 1, 3, 1, "f")
IMAGES = spec_of("Test/Images-v0", (42, 42), "uint8", 4, 3, 4, "g")
ENVIRONMENT = EnvironmentParameters()
CHOICES = Choices((3,))


def network(params: ImpalaParameters, spec: EnvironmentSpec = VECTORS, seed: int = 0) -> PolicyNetwork:
    torch.manual_seed(seed)
    return METHOD.build(spec, params, ENVIRONMENT)


def test_sampling_follows_the_policy_and_says_how_probable_it_was() -> None:
    logits = np.log(np.array([0.7, 0.2, 0.1]))
    outputs = np.tile(np.append(logits, 3.5), (20_000, 1)).astype(np.float32)
    decision = METHOD.decide(outputs, 0.0, np.random.default_rng(0), CHOICES)
    np.testing.assert_allclose(np.bincount(decision.action, minlength=3) / len(outputs), [0.7, 0.2, 0.1], atol=0.01)
    np.testing.assert_allclose(decision.taken, logits[decision.action], rtol=1e-5)
    assert set(decision.value.tolist()) == {3.5}
    one, other = np.random.default_rng(5), np.random.default_rng(5)
    METHOD.decide(outputs, 0.0, one, CHOICES), METHOD.decide(-outputs, 0.0, other, CHOICES)
    assert one.random() == other.random()  # it advances alike whatever comes out


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
    params = unroll_parameters(recurrent=recurrent, lstm_units=6, evaluation_temperature=0.5)
    net = network(params)
    frames = np.random.default_rng(0).normal(size=(6, 3, 1, 4)).astype(np.float32)
    together = [Seat(game) for game in range(3)]
    joint = np.array([METHOD.evaluation_action(params, net, frames[t], together) for t in range(6)])
    for game in range(3):
        seat = Seat(game)
        alone = [int(METHOD.evaluation_action(params, net, frames[t, game : game + 1], [seat])[0]) for t in range(6)]
        assert alone == joint[:, game].tolist()


def test_temperature_zero_takes_the_most_probable_action() -> None:
    params = unroll_parameters(evaluation_temperature=0.0)
    net = network(params)
    observation = np.random.default_rng(0).normal(size=(50, 1, 4)).astype(np.float32)
    seats = [Seat(1) for _ in range(50)]
    best = net(torch.from_numpy(observation)).logits.argmax(1).numpy()
    assert np.array_equal(METHOD.evaluation_action(params, net, observation, seats), best)


@pytest.mark.parametrize("gamma", [0.9, 0.0])
def test_an_unroll_with_memory_is_its_steps_with_the_memory_cleared_between_episodes(gamma: float) -> None:
    params = unroll_parameters(recurrent="LSTM", lstm_units=6, gamma=gamma)
    net, given = network(params), unrolls_with_ends(params, VECTORS)
    logits, values = net.unroll(given.observation, given.state, given.ended)
    state = given.state
    for t in range(params.unroll_length + 1):
        output = net(given.observation[:, t], state)
        torch.testing.assert_close(values[t], output.value)
        if t < params.unroll_length:
            torch.testing.assert_close(logits[t], output.logits)
            state = output.state.clone()
            state[given.ended[t] != 0] = 0.0


@pytest.mark.parametrize("reduction", ["Sum", "Mean"])
@pytest.mark.parametrize("corrected", [True, False])
def test_the_vtrace_loss_is_written_out_step_by_step(reduction: str, corrected: bool) -> None:
    params = unroll_parameters(
        loss_reduction=reduction, correct_off_policy=corrected, entropy_cost=0.02, value_cost=0.7, policy_kl_cost=0.3
    )
    net, given = network(params), unrolls_with_ends(params, VECTORS)
    found = METHOD.loss(params, net, given)
    steps, unrolls = given.action.shape
    total = torch.zeros(())
    rewards = (given.reward + params.gamma * given.final_value).numpy()
    outputs = [[net(given.observation[b : b + 1, t]) for b in range(unrolls)] for t in range(steps + 1)]
    policies = [[torch.log_softmax(output.logits[0], 0) for output in row] for row in outputs]
    values = np.array([[output.value.item() for output in row] for row in outputs])
    taken = [[policies[t][b][given.action[t, b]] for b in range(unrolls)] for t in range(steps)]
    log_ratio = np.array([[each.item() for each in row] for row in taken]) - given.log_prob.numpy()
    targets, advantages = by_definition(
        log_ratio if corrected else 0 * log_ratio,
        given.discount.numpy(),
        rewards,
        values[:-1],
        values[-1],
        1.0,
        1.0,
        1.0,
    )
    for t in range(steps):
        for b in range(unrolls):
            entropy = -(policies[t][b].exp() * policies[t][b]).sum()
            total = total - taken[t][b] * advantages[t, b] - 0.02 * entropy
            total = total + 0.7 * 0.5 * (targets[t, b] - outputs[t][b].value[0]) ** 2
            total = total + 0.3 * 0.5 * (taken[t][b] - given.log_prob[t, b]) ** 2
    expected = total if reduction == "Sum" else total / (steps * unrolls)
    metrics = {
        "value": values[:-1].mean(),
        "advantage_std": advantages.std(),
        "explained_variance": max(-1.0, 1.0 - (targets - values[:-1]).var() / targets.var()),
    }
    assert {name: found.metrics[name].item() for name in metrics} == pytest.approx(metrics, rel=1e-3)
    assert found.value.item() == pytest.approx(expected.item(), rel=1e-4)
    gradients = (torch.autograd.grad(loss, list(net.parameters())) for loss in (found.value, expected))
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["Nature", "Deep", "Compact"])
def test_image_networks_act_and_judge_unrolls_alike(kind: str) -> None:
    net = network(unroll_parameters(network=kind, hidden_units=16, layer_norm=True, orthogonal_init=True), IMAGES)
    frames = torch.randint(0, 256, (2, 3, 4, 42, 42), dtype=torch.uint8)
    logits, values = net.unroll(frames, net.initial_state(2), torch.zeros(2, 2, dtype=torch.uint8))
    assert (logits.shape, values.shape) == ((2, 2, 3), (3, 2))
    torch.testing.assert_close(values[2], net(frames[:, 2]).value, rtol=1e-4, atol=1e-5)


def test_the_registry_says_what_the_loops_need() -> None:
    method = algorithm("IMPALA")
    params = unroll_parameters(recurrent="LSTM", lstm_units=6)
    assert method.memory_units(params) == 6
    assert algorithm("ApeXDQN").memory_units(ApeXDQNParameters()) == 0
    net = network(params)
    before = torch.get_rng_state()
    part = method.example(VECTORS, params, net, torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), before)
    trial_update(method, params, net, part)

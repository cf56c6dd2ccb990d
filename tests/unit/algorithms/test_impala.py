"""The actor-critic: acting, memory, and its loss against a slow reference.

V-trace and GAE against their definitions, as double loops in float64.
"""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from rljob.algorithms.impala.loss import IMPALA
from rljob.algorithms.policy_network import PolicyNetwork
from rljob.algorithms.registry import algorithm
from rljob.algorithms.vtrace import explained_variance, gae, vtrace
from rljob.api import ApeXDQNParameters, EnvironmentParameters, ImpalaParameters
from rljob.choices import Choices
from rljob.envs.spec import EnvironmentSpec
from rljob.learner.optim.updater import trial_update
from torch import Tensor

from tests.support.specs import spec_of
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


def seat(seed: int) -> Any:
    return SimpleNamespace(random=np.random.default_rng(seed), memory=None)


@pytest.mark.parametrize("recurrent", ["None", "LSTM"])
def test_judged_games_do_not_depend_on_their_neighbours(recurrent: str) -> None:
    params = unroll_parameters(recurrent=recurrent, lstm_units=6, evaluation_temperature=0.5)
    net = network(params)
    frames = np.random.default_rng(0).normal(size=(6, 3, 1, 4)).astype(np.float32)
    together = [seat(game) for game in range(3)]
    joint = np.array([METHOD.evaluation_action(params, net, frames[t], together) for t in range(6)])
    for game in range(3):
        own = [seat(game)]
        alone = [int(METHOD.evaluation_action(params, net, frames[t, game : game + 1], own)[0]) for t in range(6)]
        assert alone == joint[:, game].tolist()


def test_temperature_zero_takes_the_most_probable_action() -> None:
    params = unroll_parameters(evaluation_temperature=0.0)
    net = network(params)
    observation = np.random.default_rng(0).normal(size=(50, 1, 4)).astype(np.float32)
    seats = [seat(1) for _ in range(50)]
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


Array = NDArray[np.float64]


def by_definition(
    log_ratio: Array,
    discount: Array,
    reward: Array,
    value: Array,
    bootstrap: Array,
    rho_clip: float,
    c_clip: float,
    decay: float,
) -> tuple[Array, Array]:
    """v_s = V_s + sum over t >= s of (product of discounts and c before t) * delta_t, written out for every s and t."""
    steps, streams = reward.shape
    ratio = np.exp(log_ratio)
    targets, advantages = np.zeros((steps + 1, streams)), np.zeros((steps, streams))
    values = np.concatenate([value, bootstrap[None]])
    for b in range(streams):
        for s in range(steps):
            total = 0.0
            for t in range(s, steps):
                weight = 1.0
                for i in range(s, t):
                    weight *= discount[i, b] * decay * min(c_clip, ratio[i, b])
                rho = min(rho_clip, ratio[t, b])
                total += weight * rho * (reward[t, b] + discount[t, b] * values[t + 1, b] - values[t, b])
            targets[s, b] = value[s, b] + total
        targets[steps, b] = bootstrap[b]
        for s in range(steps):
            rho = min(rho_clip, ratio[s, b])
            advantages[s, b] = rho * (reward[s, b] + discount[s, b] * targets[s + 1, b] - value[s, b])
    return targets[:-1], advantages


def case(steps: int, streams: int, seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    discount = np.full((steps, streams), 0.97)
    discount[random.random((steps, streams)) < 0.2] = 0.0
    return {
        "log_ratio": random.uniform(-2.5, 2.5, (steps, streams)),
        "discount": discount,
        "reward": random.normal(size=(steps, streams)),
        "value": random.normal(size=(steps, streams)),
        "bootstrap": random.normal(size=streams),
    }


def tensors(given: dict[str, Any], dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    return {name: torch.tensor(array, dtype=dtype) for name, array in given.items()}


@pytest.mark.parametrize("streams", [1, 5])
@pytest.mark.parametrize(
    ("rho_clip", "c_clip", "decay"),
    [(1.0, 1.0, 1.0), (3.7, 2.2, 1.0), (0.4, 0.3, 0.9), (math.inf, 1.0, 1.0), (1.0, 5.0, 0.5)],
)
def test_vtrace_is_its_definition(streams: int, rho_clip: float, c_clip: float, decay: float) -> None:
    for seed in range(4):
        given = case(5, streams, seed)
        expected_value, expected_advantage = by_definition(**given, rho_clip=rho_clip, c_clip=c_clip, decay=decay)
        found = vtrace(**tensors(given), rho_clip=rho_clip, c_clip=c_clip, trace_decay=decay)
        np.testing.assert_allclose(found.value.numpy(), expected_value, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.advantage.numpy(), expected_advantage, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.ratio.numpy(), np.exp(given["log_ratio"]), rtol=1e-5)


def test_nothing_reaches_back_over_the_end_of_an_episode() -> None:
    given = case(6, 1, 2)
    given["discount"][:] = 0.9
    given["discount"][2] = 0.0
    changed = {name: array.copy() for name, array in given.items()}
    for name in ("reward", "value", "log_ratio"):
        changed[name][3:] += 5.0
    changed["bootstrap"] += 5.0
    before, after = vtrace(**tensors(given)), vtrace(**tensors(changed))
    for name in ("value", "advantage"):
        assert torch.equal(getattr(before, name)[:3], getattr(after, name)[:3])
        assert not torch.equal(getattr(before, name)[3:], getattr(after, name)[3:])


def test_inputs_in_bf16_are_computed_in_float32() -> None:
    rounded = tensors(case(20, 4, 3), torch.bfloat16)
    exact = {name: tensor.double().numpy() for name, tensor in rounded.items()}
    expected, _ = by_definition(**exact, rho_clip=1.0, c_clip=1.0, decay=1.0)
    found = vtrace(**rounded)
    assert found.value.dtype == torch.float32
    np.testing.assert_allclose(found.value.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_no_gradient_flows_through_the_targets() -> None:
    given = tensors(case(5, 2, 4))
    for tensor in given.values():
        tensor.requires_grad_(True)
    assert not any(each.requires_grad for each in vtrace(**given))


def test_gae_is_its_definition() -> None:
    given = case(8, 4, 5)
    del given["log_ratio"]
    found = gae(**tensors(given), trace_decay=0.9)
    values = np.concatenate([given["value"], given["bootstrap"][None]])
    for b in range(4):
        for s in range(8):
            total, weight = 0.0, 1.0
            for t in range(s, 8):
                total += weight * (given["reward"][t, b] + given["discount"][t, b] * values[t + 1, b] - values[t, b])
                weight *= 0.9 * given["discount"][t, b]
            assert found.advantage[s, b].item() == pytest.approx(total, rel=1e-4, abs=1e-5)
            assert found.value[s, b].item() == pytest.approx(total + values[s, b], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(
    ("target", "value", "expected"),
    [
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], 1.0),
        ([1.0, 2.0, 3.0], [6.0, 7.0, 8.0], 1.0),  # a constant error is no lack of explanation
        ([1.0, 2.0, 3.0], [0.0, 0.0, 0.0], 0.0),
        ([0.0, 2.0], [1.0, 2.0], 0.75),
        ([0.0, 1.0], [9.0, 0.0], -1.0),
        ([0.0, 0.0], [9.0, 0.0], 0.0),  # rewards of nothing
        ([3.0], [1.0], 0.0),
    ],
)
def test_explained_variance_is_a_number_from_minus_1_to_1(
    target: list[float], value: list[float], expected: float
) -> None:
    assert explained_variance(torch.tensor(target), torch.tensor(value)).item() == pytest.approx(expected)

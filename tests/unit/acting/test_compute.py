"""Choosing how and where to compute actions changes the speed, never the meaning: a device follows the host's rules."""

from typing import Any

import numpy as np
import pytest
import torch
from rljob.acting.network import acting_copy, choose_compute
from rljob.actor.device import EpsilonGreedy, OnHost, SampledPolicy, rule_of
from rljob.algorithms.apex_dqn.loss import ApeXDQN
from rljob.algorithms.apex_dqn.network import QNetwork, QNetworkConfig
from rljob.algorithms.compute import Compute
from rljob.algorithms.impala.loss import IMPALA
from rljob.algorithms.ppo.loss import PPO
from rljob.algorithms.registry import algorithm
from rljob.api import EnvironmentParameters
from rljob.choices import Choices
from rljob.experience import Decision
from rljob.weights.flat import snapshot

from tests.support.devices import DEVICES
from tests.support.specs import spec_of
from tests.unit.learner.learner_builders import assert_equal

PONG = spec_of("Pong", (42, 42), "uint8", 4, 6)
OBSERVATION = torch.randint(0, 256, (5, 4, 42, 42), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
ROWS, ACTIONS = 40_000, 3
CHOICES = Choices((ACTIONS,))


def a_network(seed: int = 0) -> QNetwork:
    torch.manual_seed(seed)
    return QNetwork(QNetworkConfig("Compact", PONG, EnvironmentParameters(centre_input=True)))


@pytest.mark.parametrize("channels_last", [False, True])
def test_stored_halves_equal_converted_ones_bit_for_bit(channels_last: bool) -> None:
    network = a_network()
    converted = a_network().compute(Compute("bf16", channels_last))
    acting = acting_copy(network, Compute("bf16", channels_last))
    assert {p.dtype for p in acting.parameters()} == {torch.bfloat16, torch.float32}
    with torch.inference_mode():
        assert torch.equal(acting(OBSERVATION), converted(OBSERVATION))


def test_weights_are_copied_and_the_source_stays_float32() -> None:
    network, other = a_network(0), a_network(1)
    other.mean.fill_(90.0)
    acting = acting_copy(network, Compute("bf16"))
    snapshot(other, 1, 0, {}).load_into(acting)
    expected = acting_copy(other, Compute("bf16"))
    with torch.inference_mode():
        assert torch.equal(acting(OBSERVATION), expected(OBSERVATION))
    assert {p.dtype for p in network.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("precision", "allowed"),
    [("FP32", {"fp32"}), ("BF16", {"bf16"}), ("Auto", {"fp32", "bf16"}), ("TF32", {"fp32"}), ("FP16", {"fp32"})],
)
def test_precision_is_obeyed(precision: str, allowed: set[str]) -> None:
    network = a_network()
    assert choose_compute(network, ApeXDQN().infer, OBSERVATION, 0, precision).place.compute.arithmetic in allowed
    assert_equal(network.state_dict(), a_network().state_dict())


def test_each_device_is_measured_in_each_way_and_the_figures_are_kept() -> None:
    """There is one device here; torch has two names for it, and both are gone through by the code that compares two."""
    network, devices = a_network(), [torch.device("cpu:0"), torch.device("cpu")]
    measured = choose_compute(network, ApeXDQN().infer, OBSERVATION, 0, "FP32", devices)
    ways = ("fp32", "fp32 channels-last")
    assert set(measured.seconds) == {f"{device} {way}" for device in devices for way in ways}
    assert all(0.0 < taken < 1.0 for taken in measured.seconds.values())
    assert str(measured.place) in measured.seconds
    assert measured.document() == {"compute": str(measured.place), "compute_seconds": measured.seconds}


def test_a_network_is_evaluated_as_its_algorithm_does_and_may_take_more_than_the_observation() -> None:
    class Quantiles(QNetwork):
        def forward(self, observation: torch.Tensor, quantiles: int) -> torch.Tensor:  # type: ignore[override]
            return super().forward(observation).unsqueeze(1).expand(-1, quantiles, -1)

    class ByQuantiles(ApeXDQN):
        def action_values(self, net: QNetwork, observation: torch.Tensor) -> torch.Tensor:
            return net(observation, 8).mean(1)

    network = Quantiles(QNetworkConfig("Compact", PONG, EnvironmentParameters(centre_input=True)))
    assert choose_compute(network, ByQuantiles().infer, OBSERVATION, 0, "FP32").place.compute.arithmetic == "fp32"


class OwnWay(IMPALA):
    """Decides with a subclass's own method."""

    def decide(self, outputs: Any, epsilon: Any, generator: Any, choices: Choices) -> Decision:
        return super().decide(10.0 * outputs, epsilon, generator, choices)


def outputs_of(device: torch.device, columns: int) -> torch.Tensor:
    return torch.randn(columns, generator=torch.Generator().manual_seed(1)).repeat(ROWS, 1).to(device)


@pytest.mark.parametrize("device", DEVICES)
def test_epsilon_greedy_explores_each_row_as_its_epsilon_says(device: torch.device) -> None:
    outputs = outputs_of(device, ACTIONS)
    epsilon = torch.linspace(0.0, 0.9, 3).repeat_interleave(ROWS // 3 + 1)[:ROWS].to(device)
    decision = rule_of(ApeXDQN(), CHOICES, device, 3).decide(outputs, epsilon)
    best = outputs[0].argmax()
    assert decision.action.device == decision.taken.device == outputs.device
    torch.testing.assert_close(decision.value, outputs[:, best])
    torch.testing.assert_close(decision.taken, outputs.gather(1, decision.action[:, None])[:, 0])
    for each in (0.0, 0.45, 0.9):
        greedy = (decision.action[(epsilon - each).abs() < 1e-6] == best).float().mean().item()
        assert greedy == pytest.approx(1.0 - each * (ACTIONS - 1) / ACTIONS, abs=0.02)
    other = (decision.action == (best + 1) % ACTIONS).sum() / (decision.action != best).sum()
    assert other.item() == pytest.approx(0.5, abs=0.03), "every action is explored alike"


@pytest.mark.parametrize("device", DEVICES)
def test_a_policy_is_sampled_as_often_as_it_says(device: torch.device) -> None:
    outputs = outputs_of(device, ACTIONS + 1)
    decision = rule_of(IMPALA(), CHOICES, device, 3).decide(outputs, torch.zeros(ROWS, device=device))
    shares = torch.bincount(decision.action, minlength=ACTIONS).cpu() / ROWS
    expected = outputs[0, :-1].softmax(0).cpu()
    torch.testing.assert_close(shares, expected, atol=0.01, rtol=0)
    torch.testing.assert_close(decision.taken.cpu(), expected.log()[decision.action.cpu()])
    torch.testing.assert_close(decision.value, outputs[:, -1])


def test_draws_follow_from_the_seed() -> None:
    outputs = outputs_of(torch.device("cpu"), ACTIONS + 1)
    first, again, other = (
        rule_of(IMPALA(), CHOICES, outputs.device, seed).decide(outputs, outputs[:, 0]) for seed in (1, 1, 2)
    )
    assert torch.equal(first.action, again.action)
    assert not torch.equal(first.action, other.action)


@pytest.mark.parametrize("name", ["ApeXDQN", "IMPALA", "PPO"])
def test_values_of_states_are_those_of_the_algorithm(name: str) -> None:
    method = algorithm(name)
    outputs = torch.randn(50, ACTIONS + 1, generator=torch.Generator().manual_seed(2))
    values = rule_of(method, CHOICES, outputs.device, 0).state_values(outputs)
    np.testing.assert_array_equal(values.numpy(), method.state_values(outputs.numpy(), CHOICES))


def test_only_who_decides_in_the_built_in_way_is_decided_for_on_the_device() -> None:
    rules = [rule_of(method, CHOICES, torch.device("cpu"), 4) for method in (ApeXDQN(), IMPALA(), PPO(), OwnWay())]
    assert [type(each) for each in rules] == [EpsilonGreedy, SampledPolicy, SampledPolicy, OnHost]
    rule = rules[-1]
    outputs = torch.randn(20, ACTIONS + 1, generator=torch.Generator().manual_seed(2))
    decision = rule.decide(outputs, torch.zeros(20))
    expected = OwnWay().decide(outputs.numpy(), 0.0, np.random.default_rng(4), CHOICES)
    for name in ("action", "taken"):
        np.testing.assert_array_equal(getattr(decision, name).numpy(), getattr(expected, name))

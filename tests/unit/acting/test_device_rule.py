"""Acting on a device follows the rules that the algorithms have for the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from rljob.acting.device_rule import EpsilonGreedy, OnHost, SampledPolicy, rule_of
from rljob.algorithms import algorithm
from rljob.algorithms.apex_dqn import ApeXDQN
from rljob.algorithms.impala import IMPALA
from rljob.algorithms.ppo import PPO
from rljob.choices import Choices
from rljob.experience import Decision

from tests.support.devices import DEVICES

ROWS, ACTIONS = 40_000, 3
CHOICES = Choices((ACTIONS,))


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

"""Ape-X DQN against slow references that spell the definitions out, one transition at a time."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from rljob.algorithms.acting_rules import epsilon_ladder
from rljob.algorithms.apex_dqn.loss import ApeXDQN, targets
from rljob.algorithms.batches import TransitionBatch
from rljob.algorithms.distributions import TensorChoices
from rljob.algorithms.registry import algorithm
from rljob.api import ApeXDQNParameters
from rljob.choices import Choices
from torch import nn

METHOD = ApeXDQN()


def parameters(**changes: Any) -> ApeXDQNParameters:
    return ApeXDQNParameters.model_validate(changes)


@torch.inference_mode()
def q_values(table: nn.Module, observation: Any) -> np.ndarray:
    return table(torch.as_tensor(observation)).numpy()


class Table(nn.Module):
    """A Q-table looked up by the first number of the observation."""

    def __init__(self, values: list[list[float]]) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.tensor(values))
        self.choices = TensorChoices((len(values[0]),))

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return self.values[observation.reshape(len(observation), -1)[:, 0].long()]


def batch_of(rng: np.random.Generator, states: int, actions: int, size: int) -> TransitionBatch:
    discount = rng.choice([0.0, 0.9, 0.99**3], size)
    return TransitionBatch(
        observation=torch.from_numpy(rng.integers(0, states, (size, 1, 1)).astype(np.float32)),
        next_observation=torch.from_numpy(rng.integers(0, states, (size, 1, 1)).astype(np.float32)),
        action=torch.from_numpy(rng.integers(0, actions, size)),
        n_step_return=torch.from_numpy(rng.normal(0, 2, size).astype(np.float32)),
        discount=torch.from_numpy(discount.astype(np.float32)),
        weight=torch.from_numpy(rng.uniform(0.1, 1, size).astype(np.float32)),
    )


def slow_target(online: Table, target: Table, batch: TransitionBatch, i: int, double: bool) -> float:
    state = int(batch.next_observation[i].item())
    chooser = (online if double else target).values[state].tolist()
    best = max(range(len(chooser)), key=lambda a: (chooser[a], -a))  # the first of equals
    return float(batch.n_step_return[i]) + float(batch.discount[i]) * float(target.values.detach()[state, best])


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), double=st.booleans(), kind=st.sampled_from(["Huber", "MSE"]), ties=st.booleans())
def test_loss_and_targets_are_the_definitions(seed: int, double: bool, kind: str, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    states, actions, size = 5, 3, 7
    online, target = (
        Table(
            (
                rng.integers(-1, 2, (states, actions)).astype(float) if ties else rng.normal(size=(states, actions))
            ).tolist()
        )
        for _ in range(2)
    )
    batch = batch_of(rng, states, actions, size)

    wanted = [slow_target(online, target, batch, i, double) for i in range(size)]
    errors = [
        wanted[i] - float(online.values.detach()[int(batch.observation[i].item()), int(batch.action[i])])
        for i in range(size)
    ]
    each = [0.5 * e * e if kind == "MSE" or abs(e) < 1 else abs(e) - 0.5 for e in errors]
    expected = sum(float(w) * e for w, e in zip(batch.weight, each, strict=True)) / size

    result = METHOD.loss(parameters(double=double, loss=kind), online, target, batch)
    assert targets(online, target, batch, double=double).tolist() == pytest.approx(wanted, abs=1e-5)
    assert result.value.item() == pytest.approx(expected, abs=1e-5)
    assert result.td_abs.tolist() == pytest.approx([abs(e) for e in errors], abs=1e-5)
    assert METHOD.priorities(result.td_abs).tolist() == pytest.approx([abs(e) + 1e-3 for e in errors], abs=1e-5)


def test_gradient_flows_through_the_taken_value_only() -> None:
    online, target = Table([[1.0, 5.0], [2.0, 3.0]]), Table([[0.0, 1.0], [1.0, 0.0]])
    one = TransitionBatch(
        observation=torch.zeros(1, 1, 1),
        next_observation=torch.ones(1, 1, 1),
        action=torch.tensor([0]),
        n_step_return=torch.tensor([0.25]),
        discount=torch.tensor([0.5]),
        weight=torch.tensor([1.0]),
    )
    METHOD.loss(parameters(double=True, loss="MSE"), online, target, one).value.backward()
    # online chooses action 1 in state 1, target values it 0: the target is 0.25, the error 0.25 - 1
    assert online.values.grad.tolist() == [[0.75, 0.0], [0.0, 0.0]]
    assert target.values.grad is None


@example(probabilities=[1.0], size=1, exponent=0.4)
@example(probabilities=[0.25] * 4, size=4, exponent=1.0)  # uniform draws need no correction
@given(
    probabilities=st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=20),
    size=st.integers(1, 10**7),
    exponent=st.floats(0, 1),
)
def test_importance_weights_are_the_definition(probabilities: list[float], size: int, exponent: float) -> None:
    slow = [(size * p) ** -exponent for p in probabilities]
    slow = [w / max(slow) for w in slow]
    fast = METHOD.importance_weights(np.asarray(probabilities), exponent)
    assert fast.dtype == np.float32
    assert fast.tolist() == pytest.approx(slow, rel=1e-5)
    assert fast.max() == 1.0


def test_epsilon_ladder() -> None:
    assert epsilon_ladder(0, 1) == pytest.approx(0.4)
    assert [epsilon_ladder(i, 8) for i in range(8)] == pytest.approx([0.4 ** (1 + i) for i in range(8)])
    assert epsilon_ladder(15, 16, 0.4, 7) == pytest.approx(0.4**8)
    for index, total in ((-1, 4), (4, 4), (0, 0)):
        with pytest.raises(ValueError, match="ladder"):
            epsilon_ladder(index, total)


def test_acting_is_greedy_at_zero_uniform_at_one_and_reports_values() -> None:
    table = Table([[1.0, 3.0, 2.0], [9.0, 3.0, 2.0]])
    observation = np.tile(np.array([0.0, 1.0], np.float32), 1500).reshape(3000, 1, 1)
    epsilon = np.repeat([0.0, 1.0], 1500).astype(np.float32)
    decision = METHOD.decide(q_values(table, observation), epsilon, np.random.default_rng(0), Choices((3,)))
    action, taken, value = decision.action, decision.taken, decision.value
    assert (action.dtype, taken.dtype, value.dtype) == (np.int64, np.float32, np.float32)
    q = table.values.detach().numpy()[observation[:, 0, 0].astype(int)]
    assert (action[:1500] == q[:1500].argmax(1)).all()
    assert (abs(np.bincount(action[1500:], minlength=3) - 500) < 100).all()  # 5.5 standard deviations
    assert (taken == q[np.arange(3000), action]).all()
    assert (value == q.max(1)).all()


def test_acting_replays_from_its_seed_whatever_the_outcome() -> None:
    values = np.tile(np.array([0.0, 1.0], np.float32), (4, 1))
    greedy, explores = np.random.default_rng(3), np.random.default_rng(3)
    METHOD.decide(values, 0.0, greedy, Choices((2,))), METHOD.decide(values, 1.0, explores, Choices((2,)))
    assert greedy.random() == explores.random()


def test_registry() -> None:
    assert isinstance(algorithm("ApeXDQN"), ApeXDQN)
    with pytest.raises(ValueError, match="there is ApeXDQN"):
        algorithm("DQN2000")

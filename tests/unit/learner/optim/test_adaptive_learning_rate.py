"""The learning rate: its schedule, and how it is scaled down while the policy moves too far."""

import math
from typing import Any

import pytest
from rljob.algorithms.apex_dqn.parameters import ApeXDQNParameters
from rljob.api import ImpalaParameters
from rljob.learner.optim.base_updater import LARGEST_CHANGE, LEAST_SCALE, AdaptiveLearningRate


def learning_rate(target: float = 0.0, **changes: Any) -> AdaptiveLearningRate:
    return AdaptiveLearningRate(ImpalaParameters.model_validate({"learning_rate": 1e-3, **changes}), target)


def test_it_falls_over_agent_steps() -> None:
    falling = learning_rate(learning_rate_final=1e-4, learning_rate_decay_steps=1000)
    assert [falling.at(s) for s in (0, 500, 1000, 5000)] == pytest.approx([1e-3, 5.5e-4, 1e-4, 1e-4])
    assert learning_rate().at(10**9) == 1e-3
    assert AdaptiveLearningRate(ApeXDQNParameters.model_validate({"learning_rate": 2e-3})).at(10) == 2e-3


def test_without_a_target_no_divergence_matters() -> None:
    free = learning_rate()
    free.observe(100.0)
    assert free.scale == 1.0


@pytest.mark.parametrize("constant", [0.5, 50.0, 4000.0])
def test_it_finds_the_step_that_moves_the_policy_as_far_as_wanted(constant: float) -> None:
    """In a world where the divergence is a constant times the square of the step, from any start."""
    bound = learning_rate(0.02, learning_rate=0.1)
    for _ in range(60):
        bound.observe(constant * bound.at(0) ** 2)
    wanted = min(0.1, math.sqrt(0.02 / constant))  # never above the schedule
    assert bound.at(0) == pytest.approx(max(wanted, 0.1 * LEAST_SCALE), rel=1e-6)


def test_one_batch_changes_little_whatever_it_reports() -> None:
    bound = learning_rate(0.01)
    bound.observe(math.inf)
    assert bound.scale == pytest.approx(1 / LARGEST_CHANGE)
    bound.observe(math.nan)
    assert bound.scale == pytest.approx(1 / LARGEST_CHANGE)
    bound.observe(0.0)
    assert bound.scale == 1.0
    for _ in range(100):
        bound.observe(1e9)
    assert bound.scale == LEAST_SCALE

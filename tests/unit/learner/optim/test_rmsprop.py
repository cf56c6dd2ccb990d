"""RMSProp against its formula, number by number, in double precision."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, strategies as st
from rljob.algorithms.optimizer import RMSProp

RATE, DECAY = 0.01, 0.9


def by_hand(gradients: list[float], epsilon: float, momentum: float, centred: bool) -> float:
    """Where a weight that begins at 1 is after these gradients; Graves 2013, eq. 38 to 41."""
    weight, squares, mean, summed = 1.0, 0.0, 0.0, 0.0
    for gradient in gradients:
        squares = DECAY * squares + (1 - DECAY) * gradient * gradient
        mean = DECAY * mean + (1 - DECAY) * gradient
        variance = squares - mean * mean if centred else squares
        summed = momentum * summed + gradient / math.sqrt(max(variance, 0.0) + epsilon)
        weight -= RATE * summed
    return weight


@given(
    gradients=st.lists(st.floats(-3, 3), min_size=1, max_size=12),
    epsilon=st.sampled_from([1e-2, 1e-4]),
    momentum=st.sampled_from([0.0, 0.5]),
    centred=st.booleans(),
)
def test_it_follows_the_formula(gradients: list[float], epsilon: float, momentum: float, centred: bool) -> None:
    weights = [torch.ones(3), torch.ones(())]
    optimizer = RMSProp(weights, learning_rate=RATE, decay=DECAY, epsilon=epsilon, momentum=momentum, centred=centred)
    for gradient in gradients:
        for weight in weights:
            weight.grad = torch.full_like(weight, gradient)
        optimizer.step()
    expected = by_hand(gradients, epsilon, momentum, centred)
    for weight in weights:
        torch.testing.assert_close(weight, torch.full_like(weight, expected), rtol=1e-3, atol=1e-4)


def test_without_epsilon_to_speak_of_it_is_torch_s_own() -> None:
    generator = torch.Generator().manual_seed(0)
    mine, theirs = torch.ones(50), torch.ones(50)
    settings = {"lr": RATE, "alpha": DECAY, "eps": 1e-12, "momentum": 0.3}
    ours = RMSProp([mine], learning_rate=RATE, decay=DECAY, epsilon=1e-12, momentum=0.3, centred=True)
    reference = torch.optim.RMSprop([theirs], **settings, centered=True)
    for _ in range(20):
        gradient = torch.randn(50, generator=generator)
        mine.grad, theirs.grad = gradient, gradient.clone()
        ours.step(), reference.step()
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    assert ours.state[mine].keys() == reference.state[theirs].keys()


@pytest.mark.parametrize("epsilon", [1.5e-7, 1e-12])
def test_a_gradient_that_stands_still_is_no_reason_for_nan(epsilon: float) -> None:
    """Torch's own centred form makes some hundred of 1,000 such gradients NaN: the variance is rounded below zero."""
    gradient = 10 * torch.rand(1000, generator=torch.Generator().manual_seed(0))
    weight = torch.ones(1000)
    optimizer = RMSProp([weight], learning_rate=1e-3, decay=0.95, epsilon=epsilon, centred=True)
    for _ in range(400):
        weight.grad = gradient.clone()
        optimizer.step()
    assert torch.isfinite(weight).all()

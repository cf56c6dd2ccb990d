"""Continuous actions as numbers: what actors draw and what learners judge agree with each other, and with torch's own."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from rljob.algorithms.distributions import (
    LARGEST_LOG_STD,
    SMALLEST_LOG_STD,
    ActionDistribution,
    tanh_gaussian_log_prob,
)
from rljob.choices import FORBIDDEN, Choices, Gaussians, normal
from torch import Tensor
from torch.distributions import Categorical, Independent, Normal, TanhTransform, TransformedDistribution

COUNT = 100_000
SHAPES: dict[str, tuple[tuple[int, ...], int]] = {
    "choice": ((3,), 0),
    "choices": ((3, 2), 0),
    "number": ((), 1),
    "numbers": ((), 3),
    "choice and number": ((4,), 1),
    "choices and numbers": ((3, 2), 2),
}


def numbers_of(sizes: tuple[int, ...], controls: int, seed: int, count: int = COUNT) -> Tensor:
    """What a network may give for a policy: logits, means, logarithms of deviations, float64."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(count, sum(sizes) + 2 * controls, generator=generator, dtype=torch.float64)
    drawn[:, sum(sizes) + controls :].clamp_(SMALLEST_LOG_STD, LARGEST_LOG_STD)
    return drawn


def of_torch(sizes: tuple[int, ...], controls: int, numbers: Tensor) -> list[Any]:
    """The same as distributions of torch, one of each choice and one of all continuous numbers."""
    logits, mean, log_std = torch.split(numbers, [sum(sizes), controls, controls], dim=-1)
    parts = torch.split(logits, list(sizes), dim=-1) if sizes else ()
    found: list[Any] = [Categorical(logits=part) for part in parts]
    return [*found, Independent(Normal(mean, log_std.exp()), 1)] if controls else found


@pytest.mark.parametrize("shape", SHAPES)
def test_both_faces_agree_with_torch(shape: str) -> None:
    sizes, controls = SHAPES[shape]
    numbers = numbers_of(sizes, controls, 1)
    policy = ActionDistribution(sizes, controls)
    choices = Choices(sizes, controls=controls)
    generator = np.random.default_rng(0)
    logits, gaussians = choices.split(numbers.numpy())
    log_policy = choices.log_policy(logits)
    chosen = choices.sample(log_policy, generator.random(logits.shape))
    acted = choices.taken(log_policy, chosen).sum(axis=1)
    control = None
    if gaussians is not None:
        control = gaussians.sample(choices.draws(COUNT, generator))
        acted = acted + gaussians.log_prob(control)

    theirs = of_torch(sizes, controls, numbers)
    action, control = torch.from_numpy(chosen), None if control is None else torch.from_numpy(control)
    each_choice = [action] if len(sizes) == 1 else [action[:, place] for place in range(len(sizes))]
    taken = [*each_choice, *([] if control is None else [control])]
    wanted = sum(one.log_prob(of) for one, of in zip(theirs, taken, strict=True))

    normalised = policy.normalised(numbers)
    torch.testing.assert_close(policy.log_prob(normalised, action, control), wanted, rtol=0, atol=1e-5)
    np.testing.assert_allclose(acted, wanted.numpy(), rtol=0, atol=1e-5)
    torch.testing.assert_close(policy.entropy(normalised), sum(one.entropy() for one in theirs), rtol=0, atol=1e-5)
    best, mean = policy.mode(numbers)
    mode = choices.mode(numbers.numpy())
    if controls:
        np.testing.assert_allclose(mean.float().numpy(), mode["controls"] if sizes else mode)
    if sizes:
        assert (best.numpy() == (mode["choices"] if controls else mode)).all()


def test_of_choices_alone_nothing_else_is_computed() -> None:
    """Bit for bit what it was before there were continuous numbers."""
    logits, action, policy = torch.randn(50, 5), torch.randint(0, 5, (50,)), ActionDistribution((5,))
    normalised = policy.normalised(logits)
    assert torch.equal(normalised, logits.log_softmax(-1))
    assert torch.equal(policy.log_prob(normalised, action, None), normalised.gather(1, action[:, None])[:, 0])
    assert torch.equal(policy.entropy(normalised), -(normalised.exp() * normalised).sum(-1))


def test_what_is_drawn_is_normal() -> None:
    """By its first four moments, and by a share far out."""
    drawn = normal(np.random.default_rng(3).random((COUNT, 2, 3)))
    for moment, wanted, error in ((1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)):
        assert abs((drawn**moment).mean() - wanted) < 5 * np.sqrt(error / drawn.size)
    assert abs((drawn > 2).mean() - 0.02275) < 5 * np.sqrt(0.02275 / drawn.size)
    ends = normal(np.array([[[0.0, np.nextafter(1, 0)], [0.0, 0.0]]]))
    assert np.isfinite(ends).all()
    gaussians = Gaussians.of(np.array([[1.0, -2.0, np.log(0.5), 0.0]]))
    assert gaussians.sample(np.random.default_rng(0).random((1, 2, 2)), temperature=0.0).tolist() == [[1.0, -2.0]]


@pytest.mark.parametrize("draw", [-20.0, 0.0, 20.0])
@pytest.mark.parametrize("log_std", [SMALLEST_LOG_STD, LARGEST_LOG_STD])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_ends_are_finite_and_so_are_their_gradients(draw: float, log_std: float, dtype: torch.dtype) -> None:
    numbers = torch.tensor([[0.3, -0.1, log_std, log_std]], dtype=dtype, requires_grad=True)
    policy, control = ActionDistribution((), 2), torch.full((1, 2), draw, dtype=dtype)
    normalised = policy.normalised(numbers)
    log_prob = policy.log_prob(normalised, torch.zeros(1, 0, dtype=torch.int64), control)
    squashed = tanh_gaussian_log_prob(normalised[:, :2], normalised[:, 2:], control)
    total = log_prob + squashed + policy.entropy(normalised)
    total.sum().backward()
    assert torch.isfinite(torch.cat([total, numbers.grad[0]])).all()


def test_the_density_behind_a_tanh() -> None:
    """As torch's, which is asked with the draw kept too, where that is not yet 1 in float64."""
    numbers = numbers_of((), 2, 5, 10_000)
    mean, log_std = numbers[:, :2], numbers[:, 2:]
    control = (mean + log_std.exp() * torch.randn_like(mean)).clamp(-10, 10)
    transform = TanhTransform(cache_size=1)
    theirs = Independent(TransformedDistribution(Normal(mean, log_std.exp()), [transform]), 1)
    wanted = theirs.log_prob(transform(control))
    torch.testing.assert_close(tanh_gaussian_log_prob(mean, log_std, control), wanted, rtol=1e-9, atol=1e-5)


def test_a_forbidden_choice_beside_a_number_has_no_chance_and_no_gradient() -> None:
    numbers = torch.tensor([[FORBIDDEN, 0.5, 0.1, 0.0, 0.0]], requires_grad=True)
    policy = ActionDistribution((3,), 1)
    normalised = policy.normalised(numbers)
    found = policy.log_prob(normalised, torch.tensor([1]), torch.zeros(1, 1)) + policy.entropy(normalised)
    found.sum().backward()
    assert torch.isfinite(numbers.grad).all()
    assert numbers.grad[0, 0] == 0.0


def test_acting_needs_no_torch() -> None:
    code = "import sys, rljob.choices, rljob.choices, rljob.envs.encoding; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

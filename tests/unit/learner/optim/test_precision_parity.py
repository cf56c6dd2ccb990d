"""Every arithmetic learns what float32 does, up to its rounding: on the CPU where a CPU has it, on a GPU where there is one."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from rljob.algorithms.compute import Arithmetic, Compute
from rljob.learner.optim.half_precision import LossScale
from rljob.learner.optim.updater import AnyUpdater

from tests.support.devices import DEVICES, needs_cuda
from tests.unit.learner.learner_builders import (
    CPU,
    IMAGES,
    OPTIMIZERS,
    assert_equal,
    batches,
    image_parameters,
    on,
    parameters,
    unroll_batches,
    updater,
)

CUDA = torch.device("cuda")
ON_A_GPU_ONLY = [pytest.param(CUDA, "tf32", id="cuda-tf32", marks=needs_cuda)]
EVERY_ARITHMETIC = [
    pytest.param(*each.values, arithmetic, id=f"{each.id}-{arithmetic}", marks=each.marks)
    for each in DEVICES
    for arithmetic in ("bf16", "fp16")
] + ON_A_GPU_ONLY


def transitions(arithmetic: Arithmetic, device: torch.device = CPU, **changes: object) -> Any:
    return updater(parameters(layer_norm=True, **changes), IMAGES, plan=in_order(arithmetic), device=device)


def in_order(arithmetic: Arithmetic) -> Compute:
    return Compute(arithmetic, channels_last=True)


def moved(learner: AnyUpdater, start: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([(value - start[name]).ravel() for name, value in learner.online.state_dict().items()])


def alike(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(one.float(), other.float(), dim=0))


@pytest.mark.parametrize(("device", "arithmetic"), EVERY_ARITHMETIC)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_transitions(device: torch.device, arithmetic: Arithmetic, optimizer: str) -> None:
    plain, other = (
        transitions(each, device, optimizer=optimizer, optimizer_epsilon=1e-3) for each in ("fp32", arithmetic)
    )
    start = copy.deepcopy(plain.online.state_dict())
    (batch,) = batches(1, IMAGES)
    (first, expected), (second, figures) = plain.update(on(device, batch), 0), other.update(on(device, batch), 0)
    assert alike(first, second) > 0.995
    # the loss, and the norm without its scale
    torch.testing.assert_close(figures[:2], expected[:2], rtol=0.05, atol=0.0)
    assert alike(moved(other, start), moved(plain, start)) > 0.95
    assert all(value.dtype == torch.float32 for value in other.online.parameters())


@pytest.mark.parametrize(
    ("kind", "changes"),
    [("IMPALA", {"loss_reduction": "Mean"}), ("PPO", {"epochs": 1, "minibatches": 1})],
)
@pytest.mark.parametrize(("device", "arithmetic"), EVERY_ARITHMETIC)
def test_unrolls(device: torch.device, arithmetic: Arithmetic, kind: str, changes: dict[str, Any]) -> None:
    params = image_parameters(kind, optimizer="Adam", optimizer_epsilon=1e-3, **changes)
    plain, other = (updater(params, IMAGES, plan=in_order(each), device=device) for each in ("fp32", arithmetic))
    start = copy.deepcopy(plain.online.state_dict())
    for batch in unroll_batches(params, 2, IMAGES):
        for each in (plain, other):
            list(each.updates_from(on(device, batch), 0))
    assert alike(moved(other, start), moved(plain, start)) > 0.9


@needs_cuda
def test_fp32_on_a_gpu_is_fp32() -> None:
    """Left alone, torch rounds a convolution's products on CUDA to tf32."""
    plain, gpu = transitions("fp32"), transitions("fp32", CUDA)
    (batch,) = batches(1, IMAGES)
    (expected, _), (priorities, _) = plain.update(batch, 0), gpu.update(on(CUDA, batch), 0)
    torch.testing.assert_close(priorities.cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_that_fp16_would_round_to_nothing_are_learned_from(device: torch.device) -> None:
    (batch,) = batches(1, IMAGES)
    faint = on(device, batch._replace(weight=torch.full((16,), 1e-6)))
    norms = []
    for first in (1.0, 2.0**16):
        learner = transitions("fp16", device)
        learner.loss_scale = LossScale(device, first)
        norms.append(float(learner.update(faint, 0)[1][1]))
    exact = float(transitions("fp32", device).update(faint, 0)[1][1])
    assert norms[0] < 0.9 * exact, "without a scale a part of the gradient is lost"
    assert norms[1] == pytest.approx(exact, rel=0.05)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_overflow_costs_the_update_and_halves_the_scale(optimizer: str) -> None:
    learner = transitions("fp16", optimizer=optimizer)
    learner.loss_scale = LossScale(CPU, 2.0**40)
    (batch,) = batches(1, IMAGES)
    before = copy.deepcopy(learner.online.state_dict())
    _, figures = learner.update(batch, 0)
    assert learner.figures[:3] == ("loss", "gradient_norm", "loss_scale")
    assert learner.overflowed(figures.numpy())
    assert_equal(learner.online.state_dict(), before)
    assert float(learner.loss_scale.factor) == 2.0**39
    for _ in range(40):
        _, figures = learner.update(batch, 0)
    assert not learner.overflowed(figures.numpy())
    assert all(torch.isfinite(value).all() for value in learner.online.parameters())
    assert moved(learner, before).any()


def test_a_loss_that_is_not_finite_is_no_overflow() -> None:
    learner = transitions("fp16")
    nan, inf = float("nan"), float("inf")
    for figures, overflowed in (((1.0, inf, 8.0), True), ((nan, nan, 8.0), False), ((1.0, inf, 1.0), False)):
        assert learner.overflowed(np.array(figures, np.float32)) is overflowed
    assert not transitions("bf16").overflowed(np.array((1.0, inf, 8.0), np.float32))


@pytest.mark.parametrize("device", DEVICES)
def test_the_scale_grows_while_all_goes_well(device: torch.device) -> None:
    scale = LossScale(device, 4.0, growth_updates=3)
    fits, overflow = torch.tensor(1.0, device=device), torch.tensor(float("inf"), device=device)
    seen = []
    for norm in (fits, fits, fits, fits, overflow, fits, fits, fits, overflow, overflow, overflow, overflow):
        scale.follow(norm)
        seen.append(float(scale.factor))
    assert seen == [4.0, 4.0, 8.0, 8.0, 4.0, 4.0, 4.0, 8.0, 4.0, 2.0, 1.0, 1.0]

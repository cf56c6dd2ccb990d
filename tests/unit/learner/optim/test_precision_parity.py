"""Every arithmetic learns what float32 does, up to its rounding: on the CPU where a CPU has it, on a GPU where there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rljob.algorithms import algorithm
from rljob.algorithms.batches import TransitionBatch
from rljob.algorithms.compute import Arithmetic, Compute
from rljob.api import ApeXDQNParameters, ImpalaParameters
from rljob.checkpoints import store as checkpoint
from rljob.learner import state
from rljob.learner.optim.data_parallel_threads import DataParallelThreads
from rljob.learner.optim.loss_scale import LossScale
from rljob.learner.optim.sharded_optimizer import ShardedOptimizer
from rljob.learner.optim.updater import AnyUpdater, TransitionUpdater, UnrollUpdater, make_updater

from tests.support.devices import DEVICES, needs_cuda
from tests.unit.learner.learner_builders import ENV_PARAMS, IMAGES, batches, parameters, unroll_batches

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
ON_A_GPU_ONLY = [pytest.param(CUDA, "tf32", id="cuda-tf32", marks=needs_cuda)]
EVERY_ARITHMETIC = [
    pytest.param(*each.values, arithmetic, id=f"{each.id}-{arithmetic}", marks=each.marks)
    for each in DEVICES
    for arithmetic in ("bf16", "fp16")
] + ON_A_GPU_ONLY


def made(method: str, params: Any, device: torch.device, arithmetic: Arithmetic = "fp32") -> AnyUpdater:
    torch.manual_seed(0)
    chosen = algorithm(method)
    network = chosen.build(IMAGES, params, ENV_PARAMS).compute(Compute(arithmetic, channels_last=True))
    return make_updater(chosen, params, network, device)


def transitions(arithmetic: Arithmetic, device: torch.device = CPU, **changes: object) -> TransitionUpdater:
    params: ApeXDQNParameters = parameters(layer_norm=True, **changes)
    learner = made("ApeXDQN", params, device, arithmetic)
    assert isinstance(learner, TransitionUpdater)
    return learner


def on(device: torch.device, batch: Any) -> Any:
    return type(batch)(*(None if tensor is None else tensor.to(device) for tensor in batch))


def moved(learner: AnyUpdater, start: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([(value - start[name]).ravel() for name, value in learner.online.state_dict().items()])


def alike(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(one.float(), other.float(), dim=0))


@pytest.mark.parametrize(("device", "arithmetic"), EVERY_ARITHMETIC)
@pytest.mark.parametrize("optimizer", ["Adam", "RMSProp", "CentredRMSProp"])
def test_transitions(device: torch.device, arithmetic: Arithmetic, optimizer: str) -> None:
    plain = transitions("fp32", device, optimizer=optimizer, optimizer_epsilon=1e-3)
    other = transitions(arithmetic, device, optimizer=optimizer, optimizer_epsilon=1e-3)
    start = {name: value.clone() for name, value in plain.online.state_dict().items()}
    (batch,) = batches(1, IMAGES)
    (first, expected), (second, figures) = plain.update(on(device, batch), 0), other.update(on(device, batch), 0)
    assert alike(first, second) > 0.995
    torch.testing.assert_close(
        figures[:2], expected[:2], rtol=0.05, atol=0.0
    )  # the loss, and the norm without its scale
    assert alike(moved(other, start), moved(plain, start)) > 0.95
    assert all(value.dtype == torch.float32 for value in other.online.parameters())


@pytest.mark.parametrize(
    ("kind", "changes"),
    [("IMPALA", {"loss_reduction": "Mean"}), ("PPO", {"epochs": 1, "minibatches": 1})],
)
@pytest.mark.parametrize(("device", "arithmetic"), EVERY_ARITHMETIC)
def test_unrolls(device: torch.device, arithmetic: Arithmetic, kind: str, changes: dict[str, Any]) -> None:
    params = algorithm(kind).parameters.model_validate(
        {"network": "Compact", "hidden_units": 8, "unroll_length": 4, "batch_size": 4, "optimizer": "Adam",
         "optimizer_epsilon": 1e-3, "learning_rate": 1e-3, **changes}
    )  # fmt: skip
    plain, other = made(kind, params, device), made(kind, params, device, arithmetic)
    assert isinstance(plain, UnrollUpdater)
    assert isinstance(other, UnrollUpdater)
    start = {name: value.clone() for name, value in plain.online.state_dict().items()}
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


@pytest.mark.parametrize("optimizer", ["Adam", "RMSProp", "CentredRMSProp"])
def test_an_overflow_costs_the_update_and_halves_the_scale(optimizer: str) -> None:
    learner = transitions("fp16", optimizer=optimizer)
    learner.loss_scale = LossScale(CPU, 2.0**40)
    (batch,) = batches(1, IMAGES)
    before = {name: value.clone() for name, value in learner.online.state_dict().items()}
    _, figures = learner.update(batch, 0)
    assert learner.figures[:3] == ("loss", "gradient_norm", "loss_scale")
    assert learner.overflowed(figures.numpy())
    assert all(torch.equal(value, before[name]) for name, value in learner.online.state_dict().items())
    assert float(learner.loss_scale.factor) == 2.0**39
    for _ in range(40):
        _, figures = learner.update(batch, 0)
    assert not learner.overflowed(figures.numpy())
    assert all(torch.isfinite(value).all() for value in learner.online.parameters())
    assert not all(torch.equal(value, before[name]) for name, value in learner.online.state_dict().items())


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


def test_a_run_in_fp16_resumes_exactly(tmp_path: Path) -> None:
    data: list[TransitionBatch] = batches(6, IMAGES)
    straight = transitions("fp16")
    straight.loss_scale = LossScale(CPU, 2.0**30, growth_updates=2)
    for batch in data[:3]:
        straight.update(batch, 0)
    path, _ = checkpoint.write(tmp_path, "step-3", state.capture(straight), {})
    resumed = transitions("fp16")
    resumed.loss_scale = LossScale(CPU, growth_updates=2)
    state.restore(resumed, checkpoint.read(path), straight.updates)
    for batch in data[3:]:
        straight.update(batch, 0)
        resumed.update(batch, 0)
    first, second = state.capture(straight), state.capture(resumed)
    assert {"loss_scale.factor", "loss_scale.good_updates"} <= first.keys()
    assert all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("optimizer", ["RMSProp", "CentredRMSProp"])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_rmsprop_skips_on_the_device(
    device: torch.device, optimizer: str, momentum: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = ImpalaParameters.model_validate({"optimizer": optimizer, "rmsprop_momentum": momentum})

    def run(*, on_device: bool) -> list[torch.Tensor]:
        torch.manual_seed(3)
        weights = [torch.randn(20, 5, device=device), torch.randn(7, device=device)]
        each = ShardedOptimizer(params, weights, DataParallelThreads())
        each._skips_on_device = on_device
        for index in range(6):
            gradients = [torch.randn_like(weight) for weight in weights]
            if index in (0, 4):
                gradients[0][3, 2] = float("nan")
            each.step([gradients], 0.01, lambda part: None)
        return [*weights, *(value for index in range(2) for value in each.state(index).values())]

    for looked, skipped in zip(run(on_device=False), run(on_device=True), strict=False):
        torch.testing.assert_close(skipped, looked, rtol=1e-5, atol=1e-7)
        assert torch.isfinite(skipped).all()

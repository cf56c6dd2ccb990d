"""The update against a plain-torch reference, its followers, its skips, and its compiled form.

Every arithmetic learns what float32 does, up to its rounding: on the CPU where a CPU has it, on a GPU where there is one.
"""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from rljob.algorithms.apex_dqn.loss import ApeXDQN
from rljob.algorithms.batches import TransitionBatch
from rljob.algorithms.compute import Arithmetic, Compute
from rljob.algorithms.trunk import FrameNetwork
from rljob.learner import plan, state
from rljob.learner.optim.on_device import WARM_UPS, LossScale
from rljob.learner.optim.sharded_optimizer import DataParallelThreads
from rljob.learner.optim.updater import AnyUpdater
from rljob.learner.plan import fastest_arithmetic

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
    plain_optimizer,
    stepped,
    unroll_batches,
    updater,
)

BF16 = Compute("bf16", channels_last=True)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_updates_equal_a_plain_loop(optimizer: str) -> None:
    params = parameters(optimizer=optimizer, gradient_clip_norm=0.5, evaluation_weights_decay=0.9)
    fast = updater(params)
    online, target, average = (copy.deepcopy(fast.online) for _ in range(3))
    plain = plain_optimizer(optimizer, online.parameters(), epsilon=params.optimizer_epsilon, decay=0.95)
    for index, batch in enumerate(batches(20), start=1):
        result = ApeXDQN().loss(params, online, target, batch)
        norm = stepped(online, average, plain, result.value)
        if index % 7 == 0:
            target.load_state_dict(online.state_dict())
        priorities, figures = fast.update(batch, steps=0)
        torch.testing.assert_close(priorities, result.td_abs + 1e-3, rtol=1e-4, atol=1e-5)
        assert figures[:2].tolist() == pytest.approx([result.value.item(), norm], rel=1e-3)
    assert fast.updates == 20
    for mine, its in ((fast.online, online), (fast.target, target), (fast.evaluation, average)):
        torch.testing.assert_close(mine.state_dict(), its.state_dict(), rtol=1e-3, atol=1e-5)


def test_soft_target_follows_at_its_rate() -> None:
    soft = updater(parameters(target_update_tau=0.25))
    followed = copy.deepcopy(soft.target).state_dict()
    soft.update(batches(1)[0], 0)
    expected = {name: followed[name].lerp(now, 0.25) for name, now in soft.online.state_dict().items()}
    torch.testing.assert_close(dict(soft.target.state_dict()), expected)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_update_that_is_not_finite_changes_nothing(optimizer: str) -> None:
    learner = updater(parameters(optimizer=optimizer))
    first, second = batches(2)
    learner.update(first, 0)
    before = {name: tensor.clone() for name, tensor in state.capture(learner).items()}
    _, figures = learner.update(second._replace(n_step_return=torch.full((16,), float("nan"))), 0)
    assert not np.isfinite(figures[0].item())
    assert_equal(state.capture(learner), before)
    learner.update(second, 0)
    assert all(torch.isfinite(p).all() for p in learner.online.parameters())


def test_weights_kept_in_bf16_are_refused() -> None:
    good = updater(parameters())
    with pytest.raises(ValueError, match="float32"):
        type(good)(ApeXDQN(), good.params, copy.deepcopy(good.online).bfloat16(), CPU)


@pytest.mark.parametrize(("optimizer", "tau"), [("Adam", 0.0), ("RMSProp", 0.1)])
def test_weights_stored_in_bf16_learn_bit_for_bit_as_autocast_does(optimizer: str, tau: float) -> None:
    params = parameters(optimizer=optimizer, layer_norm=True, target_update_tau=tau, target_update_interval=2)
    stored, plain = (updater(params, IMAGES, plan=BF16) for _ in range(2))
    for index, batch in enumerate(batches(5, IMAGES)):
        if index == 3:  # as a checkpoint is restored
            for network in (plain.online, plain.target, stored.online, stored.target):
                network.load_state_dict(updater(params, IMAGES, seed=5).online.state_dict())
        result = ApeXDQN().loss(params, plain.online, plain.target, batch)
        gradients = torch.autograd.grad(result.value, list(plain.online.parameters()))
        plain.optimizer.step([gradients], plain.learning_rate.at(0), lambda part: None)
        plain.updates += 1
        plain._follow()
        plain._follow_at_intervals()
        priorities, _ = stored.update(batch, 0)
        assert torch.equal(priorities, result.td_abs + 1e-3)
    assert_equal(stored.online.state_dict(), plain.online.state_dict())
    assert_equal(stored.target.state_dict(), plain.target.state_dict())


def test_the_choice_obeys_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = updater(parameters(), IMAGES)
    seen: list[str] = []

    def fast_in_bf16(network: FrameNetwork, batch: TransitionBatch) -> None:
        seen.append(network.plan.arithmetic)
        if network.plan.arithmetic == "fp32":
            torch.randn(200, 200) @ torch.randn(200, 200) @ torch.randn(200, 2000)

    def chosen(*native: str) -> Compute:
        monkeypatch.setattr(plan, "native_arithmetic", lambda device: native)
        return fastest_arithmetic(
            "Auto", learner.online, fast_in_bf16, batches(1, IMAGES)[0], budget_seconds=0.2
        ).place.compute

    assert chosen("fp32").arithmetic == "fp32"
    assert set(seen) == {"fp32"}, "bf16 was tried where it is emulated"
    assert chosen("fp32", "bf16").arithmetic == "bf16"
    assert set(seen) == {"fp32", "bf16"}
    assert learner.online.plan == Compute()  # the trial was on a copy


@needs_cuda
def test_a_lone_way_is_tried_on_a_gpu_so_that_its_memory_is_taken() -> None:
    tried: list[Any] = []
    fastest_arithmetic(
        "FP32", updater(parameters()).online.to("cuda"), lambda *given: tried.append(given), batches(1)[0]
    )
    assert len(tried) == 1


@needs_cuda
@pytest.mark.parametrize("captured", [True, False])
def test_updates_that_a_graph_will_start_are_timed_as_graphs_where_they_can_be(captured: bool) -> None:
    online, called = updater(parameters(), IMAGES).online.to("cuda"), 0

    def update(network: FrameNetwork, batch: TransitionBatch) -> None:
        nonlocal called
        called += 1
        loss = sum(parameter.square().sum() for parameter in network.parameters())
        assert captured or loss.item() >= 0.0, "waiting for the device ends a capture"
        loss.backward()
        network.zero_grad()

    ways = len(
        fastest_arithmetic("Auto", online, update, batches(1, IMAGES)[0], budget_seconds=0.2, as_graphs=True).seconds
    )
    assert ways > 1
    assert called == ways * (WARM_UPS + 1) if captured else called > ways * (WARM_UPS + 1)


@pytest.mark.parametrize(("count", "size"), [(2, 16), (3, 16), (4, 5)])
@pytest.mark.parametrize("bf16", [False, True])
def test_shares_of_a_batch_learn_what_the_whole_batch_does(count: int, size: int, bf16: bool) -> None:
    params, pool = parameters(layer_norm=True, batch_size=size), DataParallelThreads(count)
    plan = BF16 if bf16 else Compute(channels_last=True)
    whole, shared, again = (updater(params, IMAGES, plan=plan, threads=each) for each in (None, pool, pool))
    tolerance = {"rtol": 5e-2, "atol": 5e-2} if bf16 else {"rtol": 1e-4, "atol": 1e-5}
    for index, batch in enumerate(batches(4, IMAGES, size)):
        expected, got, repeated = (each.update(batch, 0) for each in (whole, shared, again))
        assert all(map(torch.equal, got, repeated)), "the same order of summation every time"
        if index == 0 or not bf16:  # later, differences of rounding have moved the weights apart
            torch.testing.assert_close(got, expected, **tolerance)
        for number, _ in enumerate(whole.online.parameters() if index == 0 else ()):
            # a tenth of the gradient
            one, other = (each.optimizer.state(number)["exp_avg"].ravel() for each in (whole, shared))
            assert torch.nn.functional.cosine_similarity(one, other, dim=0) > (0.95 if bf16 else 0.9999)


def test_a_share_that_fails_is_an_error_of_the_update() -> None:
    learner = updater(parameters(), threads=DataParallelThreads(2))
    (batch,) = batches(1)
    with pytest.raises(RuntimeError):
        learner.update(batch._replace(action=torch.full((16,), 99)), 0)


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

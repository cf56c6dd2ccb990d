"""The update against a plain-torch reference, its followers, its skips, and its compiled form."""

from __future__ import annotations

import copy
import shutil

import numpy as np
import pytest
import torch
from rljob.algorithms.apex_dqn import ApeXDQN
from rljob.algorithms.batches import TransitionBatch
from rljob.algorithms.compute import Compute
from rljob.algorithms.optimizer import RMSProp
from rljob.algorithms.trunk import FrameNetwork
from rljob.learner.optim import precision
from rljob.learner.optim.captured_update import WARM_UPS
from rljob.learner.optim.data_parallel_threads import DataParallelThreads
from rljob.learner.optim.precision import choose
from rljob.learner.optim.readback import Readback

from tests.support.devices import needs_cuda
from tests.unit.learner.learner_builders import IMAGES, batches, parameters, updater

CPU = torch.device("cpu")
BF16 = Compute("bf16", channels_last=True)


@pytest.mark.parametrize("optimizer", ["Adam", "RMSProp", "CentredRMSProp"])
def test_updates_equal_a_plain_loop(optimizer: str) -> None:
    params = parameters(optimizer=optimizer, gradient_clip_norm=0.5, evaluation_weights_decay=0.9)
    fast = updater(params)
    online, target, average = (copy.deepcopy(fast.online) for _ in range(3))
    if optimizer == "Adam":
        plain: torch.optim.Optimizer | RMSProp = torch.optim.Adam(
            online.parameters(), lr=1e-3, eps=params.optimizer_epsilon, foreach=False
        )
    else:
        plain = RMSProp(
            list(online.parameters()),
            learning_rate=1e-3,
            decay=0.95,
            epsilon=params.optimizer_epsilon,
            centred=optimizer == "CentredRMSProp",
        )
    for index, batch in enumerate(batches(20), start=1):
        result = ApeXDQN().loss(params, online, target, batch)
        online.zero_grad()
        result.value.backward()
        norm = torch.stack([p.grad.square().sum() for p in online.parameters() if p.grad is not None]).sum().sqrt()
        for parameter in online.parameters():
            assert parameter.grad is not None
            parameter.grad *= min(1.0, 0.5 / (norm.item() + 1e-6))
        plain.step()
        if index % 7 == 0:
            target.load_state_dict(online.state_dict())
        with torch.no_grad():
            for mine, its in zip(average.parameters(), online.parameters(), strict=True):
                mine.copy_(0.9 * mine + 0.1 * its)
        priorities, figures = fast.update(batch, steps=0)
        torch.testing.assert_close(priorities, result.td_abs + 1e-3, rtol=1e-4, atol=1e-5)
        assert figures[:2].tolist() == pytest.approx([result.value.item(), norm.item()], rel=1e-3)
    assert fast.updates == 20
    assert fast.evaluation is not None
    for mine, its in ((fast.online, online), (fast.target, target), (fast.evaluation, average)):
        for name, tensor in its.state_dict().items():
            torch.testing.assert_close(mine.state_dict()[name], tensor, rtol=1e-3, atol=1e-5)


def test_soft_target_follows_at_its_rate() -> None:
    soft = updater(parameters(target_update_tau=0.25))
    before = copy.deepcopy(soft.target)
    soft.update(batches(1)[0], 0)
    for was, now, online in zip(before.parameters(), soft.target.parameters(), soft.online.parameters(), strict=True):
        torch.testing.assert_close(now, 0.75 * was + 0.25 * online)


@pytest.mark.parametrize("optimizer", ["Adam", "RMSProp", "CentredRMSProp"])
def test_an_update_that_is_not_finite_changes_nothing(optimizer: str) -> None:
    learner = updater(parameters(optimizer=optimizer))
    first, second = batches(2)
    learner.update(first, 0)
    before = copy.deepcopy(learner.online.state_dict())
    moments = [copy.deepcopy(learner.optimizer.state(index)) for index, _ in enumerate(learner.online.parameters())]
    _, figures = learner.update(second._replace(n_step_return=torch.full((16,), float("nan"))), 0)
    assert not np.isfinite(figures[0].item())
    for name, tensor in learner.online.state_dict().items():
        assert torch.equal(tensor, before[name])
    for index, was in enumerate(moments):
        now = learner.optimizer.state(index)
        assert "step" in was
        assert all(torch.equal(was[name], now[name]) for name in was)
    learner.update(second, 0)
    assert all(torch.isfinite(p).all() for p in learner.online.parameters())


def test_weights_kept_in_bf16_are_refused() -> None:
    good = updater(parameters())
    with pytest.raises(ValueError, match="float32"):
        type(good)(ApeXDQN(), good.params, copy.deepcopy(good.online).bfloat16(), CPU)


def test_an_update_in_bf16_moves_float32_weights_like_one_in_float32() -> None:
    params = parameters(layer_norm=True)
    plain, rounded = updater(params, IMAGES), updater(params, IMAGES, plan=BF16)
    (batch,) = batches(1, IMAGES)
    before = [p.clone() for p in plain.online.parameters()]
    (first, _), (second, _) = plain.update(batch, 0), rounded.update(batch, 0)
    assert torch.nn.functional.cosine_similarity(first, second, dim=0) > 0.995
    assert all(p.dtype == torch.float32 for p in rounded.online.parameters())
    assert all(not torch.equal(was, now) for was, now in zip(before, rounded.online.parameters(), strict=True))


@pytest.mark.parametrize(("optimizer", "tau"), [("Adam", 0.0), ("RMSProp", 0.1)])
def test_weights_stored_in_bf16_learn_bit_for_bit_as_autocast_does(optimizer: str, tau: float) -> None:
    params = parameters(optimizer=optimizer, layer_norm=True, target_update_tau=tau, target_update_interval=2)
    stored, plain = (updater(params, IMAGES, plan=BF16) for _ in range(2))
    online, target = plain.online, plain.target
    for index, batch in enumerate(batches(5, IMAGES)):
        if index == 3:  # as a checkpoint is restored
            for network in (online, target, stored.online, stored.target):
                network.load_state_dict(updater(params, IMAGES, seed=5).online.state_dict())
        result = ApeXDQN().loss(params, online, target, batch)
        gradients = torch.autograd.grad(result.value, list(online.parameters()))
        plain.optimizer.step([gradients], plain.learning_rate.at(0), lambda part: None)
        plain.updates += 1
        plain._follow()
        plain._follow_at_intervals()
        priorities, _ = stored.update(batch, 0)
        assert torch.equal(priorities, result.td_abs + 1e-3)
    for mine, its in ((stored.online, online), (stored.target, target)):
        assert all(torch.equal(tensor, its.state_dict()[name]) for name, tensor in mine.state_dict().items())


def test_readback_on_a_cpu_is_at_once() -> None:
    ((item, priorities, figures),) = Readback(CPU).push("it", torch.ones(4), torch.zeros(3))
    assert item == "it"
    assert priorities.tolist() == [1.0] * 4
    assert len(figures) == 3


def test_the_choice_obeys_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = updater(parameters(), IMAGES)
    seen: list[str] = []

    def fast_in_bf16(network: FrameNetwork, batch: TransitionBatch) -> None:
        seen.append(network.plan.arithmetic)
        if network.plan.arithmetic == "fp32":
            torch.randn(200, 200) @ torch.randn(200, 200) @ torch.randn(200, 2000)

    def chosen(*native: str) -> Compute:
        monkeypatch.setattr(precision, "native_arithmetic", lambda device: native)
        example = batches(1, IMAGES)[0]
        return choose("Auto", learner.online, fast_in_bf16, example, budget_seconds=0.2).place.compute

    assert chosen("fp32").arithmetic == "fp32"
    assert set(seen) == {"fp32"}, "bf16 was tried where it is emulated"
    assert chosen("fp32", "bf16").arithmetic == "bf16"
    assert set(seen) == {"fp32", "bf16"}
    assert learner.online.plan == Compute()  # the trial was on a copy


@needs_cuda
def test_a_lone_way_is_tried_on_a_gpu_so_that_its_memory_is_taken() -> None:
    learner, tried = updater(parameters()), 0

    def update(network: FrameNetwork, batch: TransitionBatch) -> None:
        nonlocal tried
        tried += 1

    choose("FP32", learner.online.to("cuda"), update, batches(1)[0])
    assert tried == 1


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

    found = choose("Auto", online, update, batches(1, IMAGES)[0], budget_seconds=0.2, as_graphs=True)
    ways = len(found.seconds)
    assert ways > 1
    assert called == ways * (WARM_UPS + 1) if captured else called > ways * (WARM_UPS + 1)


@pytest.mark.parametrize(("count", "size"), [(2, 16), (3, 16), (4, 5)])
@pytest.mark.parametrize("bf16", [False, True])
def test_shares_of_a_batch_learn_what_the_whole_batch_does(count: int, size: int, bf16: bool) -> None:
    params = parameters(layer_norm=True, batch_size=size)
    torch_threads, pool = torch.get_num_threads(), DataParallelThreads(count)
    plan = BF16 if bf16 else Compute(channels_last=True)
    whole, shared, again = (updater(params, IMAGES, plan=plan, threads=each) for each in (None, pool, pool))
    tolerance = {"rtol": 5e-2, "atol": 5e-2} if bf16 else {"rtol": 1e-4, "atol": 1e-5}
    for index, batch in enumerate(batches(4, IMAGES, size)):
        results = [each.update(batch, 0) for each in (whole, shared, again)]
        for expected, got, repeated in zip(*results, strict=True):
            assert torch.equal(got, repeated), "the same order of summation every time"
            if index == 0 or not bf16:  # later, differences of rounding have moved the weights apart
                torch.testing.assert_close(got, expected, **tolerance)
        if index == 0:
            for number, _ in enumerate(whole.online.parameters()):
                expected, got = (
                    each.optimizer.state(number)["exp_avg"] for each in (whole, shared)
                )  # a tenth of the gradient
                alike = torch.nn.functional.cosine_similarity(got.ravel(), expected.ravel(), dim=0)
                assert alike > (0.95 if bf16 else 0.9999)
    torch.set_num_threads(torch_threads)


def test_a_share_that_fails_is_an_error_of_the_update() -> None:
    learner = updater(parameters(), threads=DataParallelThreads(2))
    (batch,) = batches(1)
    with pytest.raises(RuntimeError):
        learner.update(batch._replace(action=torch.full((16,), 99)), 0)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
@pytest.mark.timeout(240)
def test_compiled_updates_equal_eager_ones_and_compile_once() -> None:
    params = parameters(hidden_units=8)
    eager, compiled = updater(params), updater(params)
    compiled.compile()
    for batch in batches(6):
        expected, _ = eager.update(batch, 0)
        got, _ = compiled.update(batch, 0)
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert compiled.recompiles == 0

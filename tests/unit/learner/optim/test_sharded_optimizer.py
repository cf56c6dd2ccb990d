"""A step of the optimiser whose work is divided between threads moves the weights as one that is not."""

import copy
from collections.abc import Sequence
from functools import partial

import pytest
import torch
from hypothesis import given, strategies as st
from rljob.algorithms.base import ParameterGroup
from rljob.algorithms.optimizer import Kept, Optimizer
from rljob.api import ImpalaParameters
from rljob.learner.optim import sharded_optimizer
from rljob.learner.optim.sharded_optimizer import DataParallelThreads, ParameterSlice, ShardedOptimizer, shard_evenly
from torch import Tensor

from tests.unit.learner.learner_builders import OPTIMIZERS, parameters, plain_optimizer

SHAPES = [(4, 3, 3, 3), (4,), (64, 9), (64,), (), (1, 64)]


@pytest.fixture(autouse=True)
def _divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharded_optimizer, "FEW_NUMBERS", 0)


def some(seed: int, scale: float = 1.0) -> list[Tensor]:
    """Tensors of the shapes; the convolution's weights in channels-last order."""
    generator = torch.Generator().manual_seed(seed)
    first, *others = [scale * torch.randn(shape, generator=generator) for shape in SHAPES]
    return [first.contiguous(memory_format=torch.channels_last), *others]


def gradients(seed: int, pieces: int) -> list[list[Tensor]]:
    """Gradients of several pieces; those of a convolution come in plain order, and one in bf16."""
    found = [[gradient.contiguous() for gradient in some(seed + piece)] for piece in range(pieces)]
    for piece in found:
        piece[2] = piece[2].bfloat16()
    return found


def settings(optimizer: str, clip_norm: float) -> ImpalaParameters:
    changes = {"optimizer_epsilon": 1e-4, "learning_rate": 1e-2, "rmsprop_momentum": 0.3}
    return ImpalaParameters.model_validate({"optimizer": optimizer, "gradient_clip_norm": clip_norm, **changes})


def unseen(shard: list[ParameterSlice]) -> None:
    """Nothing follows."""


@given(st.lists(st.integers(0, 70), min_size=1, max_size=6), st.integers(1, 5))
def test_shards_hold_every_number_once_and_are_equal(sizes: list[int], count: int) -> None:
    shards = shard_evenly(sizes, count)
    held = [(each.index, number) for shard in shards for each in shard for number in range(each.start, each.stop)]
    assert held == [(index, number) for index, size in enumerate(sizes) for number in range(size)]
    lengths = [sum(each.stop - each.start for each in shard) for shard in shards]
    assert max(lengths, default=0) - min(lengths, default=0) <= 1


def test_a_slice_is_a_view_of_numbers_as_they_lie() -> None:
    whole = torch.arange(24.0).reshape(2, 3, 2, 2).contiguous(memory_format=torch.channels_last)[1:]
    ParameterSlice(0, 1, 3).view(whole).zero_()
    assert whole.permute(0, 2, 3, 1).ravel().tolist() == [12, 0, 0, 13, 17, 21, 14, 18, 22, 15, 19, 23]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("clip_norm", [0.0, 5.0])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_it_equals_clipping_and_a_step_on_whole_weights(optimizer: str, clip_norm: float, count: int) -> None:
    weights, plain = some(0), [weight.requires_grad_() for weight in some(0)]
    mine = ShardedOptimizer(settings(optimizer, clip_norm), weights, DataParallelThreads(count))
    reference = plain_optimizer(optimizer, plain, epsilon=1e-4, decay=0.99, momentum=0.3)
    assert len(mine.shards) == count
    for update in range(6):
        pieces = gradients(10 * update, max(count, 2))
        given_to(plain, pieces)
        expected = torch.nn.utils.clip_grad_norm_(plain, clip_norm or float("inf"))
        rate = 1e-2 / (1 + update)
        if optimizer == "Adam":
            reference.param_groups[0]["lr"] = rate
        reference.learning_rate = rate
        reference.step()
        moved: list[list[ParameterSlice]] = []
        versions = [weight._version for weight in weights]
        assert float(mine.step(pieces, rate, moved.append)) == pytest.approx(float(expected), rel=1e-5)
        assert sorted(map(str, moved)) == sorted(map(str, mine.shards))
        assert mine._optimizers[0].learning_rate == rate
        assert all(weight._version > before for weight, before in zip(weights, versions, strict=True))
    torch.testing.assert_close(weights, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(("before", "after"), [(1, 2), (3, 1), (2, 3)])
def test_what_it_remembers_goes_on_with_another_number_of_threads(optimizer: str, before: int, after: int) -> None:
    params, weights = settings(optimizer, 5.0), some(0)
    first = ShardedOptimizer(params, weights, DataParallelThreads(before))
    for update in range(3):
        first.step(gradients(update, 2), 1e-2, unseen)
    resumed_weights = [weight.clone() for weight in weights]
    resumed = ShardedOptimizer(params, resumed_weights, DataParallelThreads(after))
    for index, weight in enumerate(weights):
        kept = first.state(index)
        assert {tensor.stride() for name, tensor in kept.items() if name != "step"} == {weight.stride()}
        resumed.load(index, {name: tensor.clone().contiguous() for name, tensor in kept.items()})
    for update in range(3, 6):
        torch.testing.assert_close(*(each.step(gradients(update, 2), 1e-2, unseen) for each in (first, resumed)))
    torch.testing.assert_close(resumed_weights, weights)
    assert float(resumed.state(0)["step"]) == 6


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_in_one_shard_moves_none(optimizer: str, wrong: float, on_device: bool) -> None:
    """Neither as the first nor later."""
    weights, bad = some(0), gradients(1, 2)
    bad[1][5][0, 3] = wrong
    mine = ShardedOptimizer(settings(optimizer, 5.0), weights, DataParallelThreads(3))
    mine._skips_on_device = on_device  # as on a GPU, where nothing is read back
    assert not torch.isfinite(mine.step(bad, 1e-2, unseen))
    torch.testing.assert_close(weights, some(0), rtol=0.0, atol=0.0)
    mine.step(gradients(0, 2), 1e-2, unseen)
    before = copy.deepcopy((weights, [dict(mine.state(index)) for index in range(len(weights))]))
    assert not torch.isfinite(mine.step(bad, 1e-2, unseen))
    mine.step(gradients(1, 2), 1e-2, unseen, loss=torch.tensor(wrong))
    after = weights, [dict(mine.state(index)) for index in range(len(weights))]
    torch.testing.assert_close(after, before, rtol=0.0, atol=0.0)


def test_few_weights_are_moved_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharded_optimizer, "FEW_NUMBERS", 1_000)
    assert len(ShardedOptimizer(parameters(), some(0), DataParallelThreads(2)).shards) == 1


def test_two_parameters_may_have_one_gradient_between_them() -> None:
    weights, gradient = [torch.zeros(3), torch.zeros(3)], torch.tensor([3.0, 0.0, 4.0])
    mine = ShardedOptimizer(settings("RMSProp", 1.0), weights, DataParallelThreads(1))
    mine.step([[gradient, gradient]], 1e-2, unseen)
    torch.testing.assert_close(
        mine.state(0)["square_avg"], 0.01 * torch.tensor([0.36, 0.0, 0.64]) / 2, rtol=1e-4, atol=0.0
    )
    assert torch.equal(mine.state(0)["square_avg"], mine.state(1)["square_avg"])
    assert torch.equal(weights[0], weights[1])


def given_to(weights: list[Tensor], pieces: list[list[Tensor]]) -> None:
    """The sum of the pieces as the gradients of whole weights."""
    for index, weight in enumerate(weights):
        weight.grad = torch.stack([piece[index].float() for piece in pieces]).sum(0)


class Signs(Optimizer):
    """An author's own: a step of the rate against the sign of the mean gradient."""

    names = ("mean",)

    def __init__(self, weights: Sequence[Tensor], learning_rate: float, decay: float) -> None:
        super().__init__(weights, learning_rate)
        self.decay = decay

    def move(self, weights: list[Tensor], gradients: list[Tensor], kept: Kept) -> None:
        torch._foreach_lerp_(kept("mean"), gradients, 1.0 - self.decay)
        for weight, mean in zip(weights, kept("mean"), strict=True):
            weight.sub_(torch.sign(mean) * self.learning_rate)


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_group_may_have_an_optimiser_of_its_own_and_move_at_some_updates(threads: int, on_device: bool) -> None:
    one, two = torch.zeros(40), torch.zeros(30)
    groups = [
        ParameterGroup([one], every=2, optimizer=partial(Signs, decay=0.5)),
        ParameterGroup([two], rate=2.0),
    ]
    mine = ShardedOptimizer(settings("Adam", 0.0), [one, two], DataParallelThreads(threads), groups)
    mine._skips_on_device = on_device
    moved: list[ParameterSlice] = []
    places = []
    for update in range(1, 7):
        gradient = [torch.full((40,), 1.0 if update < 6 else -4.0), torch.ones(30)]
        mine.step([gradient], 0.25, moved.extend, update=torch.tensor(update))
        places.append(float(one[0]))
    # It moves at the second, fourth and sixth; the mean of 1, 1 and -4 is negative by then.
    assert places == [0.0, -0.25, -0.25, -0.5, -0.5, -0.25]
    assert torch.equal(one, one[:1].expand(40))
    assert float(two[0]) == pytest.approx(-6 * 0.5, rel=1e-3)
    assert [float(mine.state(index)["step"]) for index in (0, 1)] == [3.0, 6.0]
    assert float(mine.state(0)["mean"][0]) == pytest.approx(-1.625)
    assert mine.state_names(0) == {"step", "mean"}
    if not on_device:
        assert sum(each.stop - each.start for each in moved if each.index == 0) == 3 * 40

"""A step of the optimiser whose work is divided between threads moves the weights as one that is not."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from learner_builders import parameters
from rljob.api import ImpalaParameters
from rljob.learner import descent
from rljob.learner.cut import Cut, cuts
from rljob.learner.descent import Descent
from rljob.learner.rmsprop import RMSProp
from rljob.learner.shares import Shares
from torch import Tensor

OPTIMIZERS = ["Adam", "RMSProp", "CentredRMSProp"]
SHAPES = [(4, 3, 3, 3), (4,), (64, 9), (64,), (), (1, 64)]


@pytest.fixture(autouse=True)
def _divided(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(descent, "FEW_NUMBERS", 0)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def some(seed: int, scale: float = 1.0) -> list[Tensor]:
    """Tensors of the shapes; the convolution's weights in channels-last order."""
    generator = torch.Generator().manual_seed(seed)
    first, *others = [scale * torch.randn(shape, generator=generator) for shape in SHAPES]
    return [first.contiguous(memory_format=torch.channels_last), *others]


def gradients(seed: int, pieces: int) -> list[list[Tensor]]:
    """Of several pieces; those of a convolution come in plain order, and one in bf16."""
    found = [[gradient.contiguous() for gradient in some(seed + piece)] for piece in range(pieces)]
    for piece in found:
        piece[2] = piece[2].bfloat16()
    return found


def settings(optimizer: str, clip_norm: float) -> ImpalaParameters:
    changes = {"optimizer_epsilon": 1e-4, "learning_rate": 1e-2, "rmsprop_momentum": 0.3}
    return ImpalaParameters.model_validate({"optimizer": optimizer, "gradient_clip_norm": clip_norm, **changes})


def unseen(part: list[Cut]) -> None:
    """Nobody follows."""


@given(st.lists(st.integers(0, 70), min_size=1, max_size=6), st.integers(1, 5))
def test_parts_hold_every_number_once_and_are_equal(sizes: list[int], count: int) -> None:
    parts = cuts(sizes, count)
    held = [(cut.index, number) for part in parts for cut in part for number in range(cut.start, cut.stop)]
    assert held == [(index, number) for index, size in enumerate(sizes) for number in range(size)]
    lengths = [sum(cut.stop - cut.start for cut in part) for part in parts]
    assert max(lengths, default=0) - min(lengths, default=0) <= 1


def test_a_cut_is_a_view_of_numbers_as_they_lie() -> None:
    whole = torch.arange(24.0).reshape(2, 3, 2, 2).contiguous(memory_format=torch.channels_last)[1:]
    Cut(0, 1, 3).of(whole).zero_()
    assert whole.permute(0, 2, 3, 1).ravel().tolist() == [12, 0, 0, 13, 17, 21, 14, 18, 22, 15, 19, 23]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("clip_norm", [0.0, 5.0])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_it_equals_clipping_and_a_step_on_whole_weights(optimizer: str, clip_norm: float, count: int) -> None:
    weights, plain = some(0), [weight.requires_grad_() for weight in some(0)]
    mine = Descent(settings(optimizer, clip_norm), weights, Shares(count))
    reference: torch.optim.Optimizer = (
        torch.optim.Adam(plain, lr=1e-2, eps=1e-4, foreach=False)
        if optimizer == "Adam"
        else RMSProp(
            plain, learning_rate=1e-2, decay=0.99, epsilon=1e-4, momentum=0.3, centred=optimizer == "CentredRMSProp"
        )
    )
    assert len(mine.parts) == count
    for update in range(6):
        pieces = gradients(10 * update, max(count, 2))
        for index, weight in enumerate(plain):
            weight.grad = torch.stack([piece[index].float() for piece in pieces]).sum(0)
        expected = torch.nn.utils.clip_grad_norm_(plain, clip_norm or float("inf"))
        rate = 1e-2 / (1 + update)
        reference.param_groups[0]["lr"] = rate
        reference.step()
        followed: list[list[Cut]] = []
        versions = [weight._version for weight in weights]
        norm = mine.step(pieces, rate, followed.append)
        assert float(norm) == pytest.approx(float(expected), rel=1e-5)
        assert sorted(map(str, followed)) == sorted(map(str, mine.parts))
        assert mine.rate == rate
        assert all(weight._version > before for weight, before in zip(weights, versions, strict=True))
    for got, wanted in zip(weights, plain, strict=True):
        torch.testing.assert_close(got, wanted.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(("before", "after"), [(1, 2), (3, 1), (2, 3)])
def test_what_it_remembers_goes_on_with_another_number_of_threads(optimizer: str, before: int, after: int) -> None:
    params = settings(optimizer, 5.0)
    weights = some(0)
    first = Descent(params, weights, Shares(before))
    for update in range(3):
        first.step(gradients(update, 2), 1e-2, unseen)
    resumed_weights = [weight.clone() for weight in weights]
    resumed = Descent(params, resumed_weights, Shares(after))
    for index, weight in enumerate(weights):
        remembered = first.state(index)
        assert {tensor.stride() for name, tensor in remembered.items() if name != "step"} == {weight.stride()}
        resumed.load(index, {name: tensor.clone().contiguous() for name, tensor in remembered.items()})
    for update in range(3, 6):
        norms = [each.step(gradients(update, 2), 1e-2, unseen) for each in (first, resumed)]
        torch.testing.assert_close(norms[0], norms[1])
    for got, wanted in zip(resumed_weights, weights, strict=True):
        torch.testing.assert_close(got, wanted)
    assert float(resumed.state(0)["step"]) == 6


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_in_one_part_moves_none(optimizer: str, wrong: float) -> None:
    weights = some(0)
    mine = Descent(settings(optimizer, 5.0), weights, Shares(3))
    mine.step(gradients(0, 2), 1e-2, unseen)
    before = [weight.clone() for weight in weights]
    remembered = [copy.deepcopy(mine.state(index)) for index in range(len(weights))]
    bad = gradients(1, 2)
    bad[1][5][0, 3] = wrong
    assert not torch.isfinite(mine.step(bad, 1e-2, unseen))
    assert all(torch.equal(weight, was) for weight, was in zip(weights, before, strict=True))
    for index, was in enumerate(remembered):
        assert all(torch.equal(was[name], now) for name, now in mine.state(index).items())


def test_few_weights_are_moved_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descent, "FEW_NUMBERS", 1_000)
    assert len(Descent(parameters(), some(0), Shares(2)).parts) == 1


def test_two_parameters_may_have_one_gradient_between_them() -> None:
    weights, gradient = [torch.zeros(3), torch.zeros(3)], torch.tensor([3.0, 0.0, 4.0])
    mine = Descent(settings("RMSProp", 1.0), weights, Shares(1))
    mine.step([[gradient, gradient]], 1e-2, unseen)
    torch.testing.assert_close(
        mine.state(0)["square_avg"], 0.01 * torch.tensor([0.36, 0.0, 0.64]) / 2, rtol=1e-4, atol=0.0
    )
    assert torch.equal(mine.state(0)["square_avg"], mine.state(1)["square_avg"])
    assert torch.equal(weights[0], weights[1])

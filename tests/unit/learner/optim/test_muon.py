"""Muon against torch's own, and against what it is for: a direction all of whose singular values are alike."""

from __future__ import annotations

import pytest
import torch
from rljob.algorithms.ensemble import DenseEnsemble
from rljob.algorithms.optimizer import Muon, is_matrix, orthogonal
from torch import Tensor


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def muon(weights: list[Tensor], half: bool = False) -> Muon:
    """One that computes in bf16 or not, whatever this processor can."""
    optimizer = Muon(weights, 1e-2)
    optimizer._half = half
    return optimizer


@pytest.mark.parametrize(("half", "apart"), [(False, 0.03), (True, 0.08)])
@pytest.mark.parametrize("shape", [(12, 40), (40, 12), (16, 16), (1, 9)])
def test_a_matrix_is_moved_as_torch_s_own_moves_it(shape: tuple[int, int], half: bool, apart: float) -> None:
    """Torch multiplies in bf16, of whose 8 bits a few are lost in fifteen products, in another order than here."""
    mine = torch.randn(shape, generator=(generator := seeded()))
    theirs = mine.clone()
    ours = muon([mine], half)
    reference = torch.optim.Muon([theirs], lr=1e-2, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    for _ in range(5):
        before = theirs.clone()
        mine.grad = torch.randn(shape, generator=generator)
        theirs.grad = mine.grad.clone()
        ours.step(), reference.step()
        moved, wanted = mine - before, theirs - before
        assert float((moved - wanted).norm() / wanted.norm()) < apart
        torch.testing.assert_close(ours.state[mine]["momentum_buffer"], reference.state[theirs]["momentum_buffer"])
        mine.copy_(theirs)


def test_singular_values_become_alike() -> None:
    uneven = torch.diag(torch.logspace(0, -2, 20)) @ torch.randn(20, 50, generator=seeded())
    values = torch.linalg.svdvals(orthogonal(uneven))
    assert 0.5 < float(values.min()) < float(values.max()) < 1.5


def test_matrices_beside_each_other_are_moved_each_by_itself() -> None:
    together, apart = torch.zeros(3, 6, 9), [torch.zeros(6, 9) for _ in range(3)]
    several, single = muon([together]), muon(apart)
    together.grad = torch.randn(3, 6, 9, generator=seeded())
    for weight, gradient in zip(apart, together.grad, strict=True):
        weight.grad = gradient.clone()
    several.step(), single.step()
    torch.testing.assert_close(together, torch.stack(apart))


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("channels", [4, 1])
def test_of_a_convolution_an_output_is_a_row(order: torch.memory_format, channels: int) -> None:
    """With one channel there are fewer weights of an output than outputs."""
    gradient = torch.randn(16, channels, 3, 3, generator=seeded())
    convolution = torch.zeros_like(gradient).contiguous(memory_format=order)
    matrix = torch.zeros(16, 9 * channels)
    convolution.grad, matrix.grad = gradient.contiguous(memory_format=order), gradient.flatten(1)
    muon([convolution]).step(), muon([matrix]).step()
    torch.testing.assert_close(convolution.flatten(1), matrix)


def test_a_gradient_of_zeros_moves_nothing() -> None:
    weight = torch.ones(4, 5)
    weight.grad = torch.zeros(4, 5)
    muon([weight]).step()
    assert torch.equal(weight, torch.ones(4, 5))


def test_what_has_one_row_or_column_is_no_matrix() -> None:
    """Adam moves it: the biases of several critics, which are [members, 1, units], and the layers of one number."""
    critics = dict(DenseEnsemble(2, 6, 8, 2).named_parameters())
    assert {name for name, weight in critics.items() if is_matrix(weight)} == {"weights.0", "weights.1"}
    assert is_matrix(torch.zeros(4, 3, 1, 1)), "a convolution of single pixels"
    assert not is_matrix(torch.zeros(()))

"""A step of the optimiser: add up the gradients of an update's pieces, clip, move the weights; each thread an equal part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rljob.learner.cut import Cut, cuts
from rljob.learner.rmsprop import RMSProp, remembered
from rljob.learner.shares import Shares

FEW_NUMBERS = 200_000
"""Of fewer weights than this a second thread moves its part no sooner than it has been woken."""


class Descent:
    """Moves ``parameters`` (float32, on one device, which keep their place and order in memory) by ``params``' optimiser.

    Every thread of ``shares`` keeps the moments of its own part of the weights and moves no other, so that a wide layer
    is divided as well as many small ones. An update whose gradient is not finite moves nothing.
    """

    def __init__(self, params: Any, parameters: Sequence[Tensor], shares: Shares) -> None:
        self._parameters = list(parameters)
        self._shares = shares
        self._clip_norm = params.gradient_clip_norm  # 0: never clip
        sizes = [parameter.numel() for parameter in self._parameters]
        self.parts = cuts(sizes, shares.count if sum(sizes) >= FEW_NUMBERS else 1)
        self._weights = [[cut.among(self._parameters) for cut in part] for part in self.parts]
        self._optimizers = [_optimizer(params, weights) for weights in self._weights]
        self._skips_on_device = params.optimizer == "Adam"

    @property
    def rate(self) -> float:
        """The step size of the last step."""
        return float(self._optimizers[0].param_groups[0]["lr"])

    def step(self, pieces: Sequence[Sequence[Tensor]], rate: float, then: Callable[[Sequence[Cut]], None]) -> Tensor:
        """Move the weights along the sum of the pieces' gradients (each one tensor a parameter, of any precision; given away).

        ``rate``: the step size. ``then(part)`` is called by the thread that has moved that part. Returns the gradient's norm
        before clipping, on the device.
        """
        ordered = [self._ordered(piece) for piece in pieces]
        numbers = range(len(self.parts))
        norms = self._shares.each(lambda number: self._add_up(number, ordered), numbers)
        norm = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))
        factor = torch.clamp(self._clip_norm / (norm + 1e-6), max=1.0) if self._clip_norm else None
        blocked = (~torch.isfinite(norm)).float()
        if not self._skips_on_device and bool(blocked):
            return norm

        def move(number: int) -> None:
            self._move(number, factor, blocked, rate)
            then(self.parts[number])

        self._shares.each(move, numbers)
        if self._skips_on_device:
            torch.autograd.graph.increment_version(self._parameters)  # a fused step changes them without saying so
        return norm

    def _ordered(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The gradients in their parameters' order, no two in the same memory: of two biases that are added they may be."""
        ordered: list[Tensor] = []
        taken: set[int] = set()
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            ordered.append(in_order_of(parameter, gradient.clone() if gradient.data_ptr() in taken else gradient))
            taken.add(gradient.data_ptr())
        return ordered

    @torch.no_grad()
    def _add_up(self, number: int, pieces: list[list[Tensor]]) -> Tensor:
        """Set the gradient of a part, in float32; its norm. The order of summation is always the same."""
        first, *others = pieces
        gradients = [cut.among(first).float() for cut in self.parts[number]]
        for other in others:
            torch._foreach_add_(gradients, [cut.among(other).float() for cut in self.parts[number]])
        for weight, gradient in zip(self._weights[number], gradients, strict=True):
            weight.grad = gradient
        norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        return norm

    @torch.no_grad()
    def _move(self, number: int, factor: Tensor | None, blocked: Tensor, rate: float) -> None:
        optimizer = self._optimizers[number]
        if factor is not None:
            torch._foreach_mul_([weight.grad for weight in self._weights[number] if weight.grad is not None], factor)
        for group in optimizer.param_groups:
            group["lr"] = rate
        if self._skips_on_device:
            optimizer.found_inf = blocked  # type: ignore[attr-defined]
        optimizer.step()

    def state(self, index: int) -> dict[str, Tensor]:
        """What the optimiser remembers of the ``index``-th parameter, by name: tensors of its shape and order, and ``step``."""
        state: dict[str, Tensor] = {}
        for optimizer, cut, weight in self._places(index):
            for name, value in optimizer.state.get(weight, {}).items():
                if name == "step":
                    state[name] = value
                elif isinstance(value, Tensor):
                    cut.of(state.setdefault(name, torch.empty_like(self._parameters[index]))).copy_(value)
        return state

    @property
    def remembered(self) -> frozenset[str]:
        """What the optimiser remembers of a parameter once it has moved it, by name."""
        defaults = self._optimizers[0].defaults
        if "betas" in defaults:
            return frozenset(("step", "exp_avg", "exp_avg_sq"))
        return frozenset(("step", *remembered(defaults)))

    def load(self, index: int, saved: Mapping[str, Tensor]) -> None:
        """Put what ``state`` gave for this parameter in its place, however many threads there were then."""
        parameter = self._parameters[index]
        for optimizer, cut, weight in self._places(index):
            # A fused optimiser counts its steps where it computes, any other on the CPU.
            counted = parameter.device if optimizer.defaults.get("fused") else torch.device("cpu")
            optimizer.state[weight] = {
                name: value.to(counted, copy=True)
                if name == "step"
                else cut.of(in_order_of(parameter, value.to(parameter.device))).clone()
                for name, value in saved.items()
            }

    def _places(self, index: int) -> Iterator[tuple[torch.optim.Optimizer, Cut, Tensor]]:
        """Where the numbers of the ``index``-th parameter are moved: by which optimiser, which of them, and their view."""
        for optimizer, part, weights in zip(self._optimizers, self.parts, self._weights, strict=True):
            for cut, weight in zip(part, weights, strict=True):
                if cut.index == index:
                    yield optimizer, cut, weight


def in_order_of(parameter: Tensor, value: Tensor) -> Tensor:
    """``value``, which has the shape of ``parameter``, with its order in memory.

    An optimiser goes through a part of a parameter, its gradient and its moments side by side in memory, and takes for granted
    that the same places belong together: those of channels-last weights must be channels-last too.
    """
    return value if value.stride() == parameter.stride() else torch.empty_like(parameter).copy_(value)


def _optimizer(params: Any, weights: list[Tensor]) -> torch.optim.Optimizer:
    if params.optimizer == "Adam":  # fused: one pass over all parameters, four times faster than a loop on a CPU
        return torch.optim.Adam(weights, lr=params.learning_rate, eps=params.optimizer_epsilon, fused=True)
    return RMSProp(
        weights,
        learning_rate=params.learning_rate,
        decay=params.rmsprop_decay,
        epsilon=params.optimizer_epsilon,
        momentum=getattr(params, "rmsprop_momentum", 0.0),
        centred=params.optimizer == "CentredRMSProp",
    )

"""What the optimisers have in common: some weights, and what is kept of each from step to step.

They are none of ``torch.optim.Optimizer``, whose construction and every step import ``torch._dynamo``, the compiler: two seconds
and 70 MB of a process that begins anew, and of a pod that takes the place of another, for what most jobs never use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Kept = Callable[[str], list[Tensor]]


class Optimizer(ABC):
    """Moves ``weights`` along their gradients.

    Attributes:
        learning_rate: of the next step; a number on the weights' device lets a step be captured in a CUDA graph.
        found_inf: where it is set before a step, a number on the weights' device: 1 lets the step move nothing, without anybody
            waiting to know it.
        names: of the tensors that are kept for each weight, beside ``step``. They begin as zeros.
        state: what is kept of each weight that has been moved, by these names.
    """

    names: tuple[str, ...]

    def __init__(self, weights: Sequence[Tensor], learning_rate: float | Tensor) -> None:
        self.weights = list(weights)
        self.learning_rate = learning_rate
        self.found_inf: Tensor | None = None
        self.state: dict[Tensor, dict[str, Tensor]] = {}

    @torch.no_grad()
    def step(self) -> None:
        """Move every weight that has a gradient."""
        moved = [(weight, weight.grad) for weight in self.weights if weight.grad is not None]
        if not moved:
            return
        for weight, _ in moved:
            if weight not in self.state:
                self.state[weight] = {name: torch.zeros_like(weight) for name in self.names}
                self.state[weight]["step"] = torch.zeros((), device=weight.device)
        weights = [weight for weight, _ in moved]
        self._move(weights, [gradient for _, gradient in moved], lambda name: [self.state[w][name] for w in weights])

    @abstractmethod
    def _move(self, weights: list[Tensor], gradients: list[Tensor], kept: Kept) -> None:
        """Move these weights; ``kept(name)``: what is kept of each under that name."""

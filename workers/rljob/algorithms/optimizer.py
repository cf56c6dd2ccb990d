"""Adam, by torch's fused kernel, and RMSProp as the papers on Atari use it (epsilon under the root, and a centred form).

They are none of ``torch.optim.Optimizer``, whose construction and every step import ``torch._dynamo``, the compiler: two seconds
and 70 MB of a process that begins anew, and of a pod that takes the place of another, for what most jobs never use.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor

Kept = Callable[[str], list[Tensor]]


class Optimizer(ABC):
    """Moves ``weights``, float32 on one device, along their gradients. A subclass says how, in ``move``.

    ``weights`` may be slices of parameters, flat, so that several threads share the work: each number is moved by itself.

    Attributes:
        names: of the tensors that are kept for each weight, beside ``step``. They begin as zeros.
        skips: whether ``move`` minds ``found_inf`` itself.
        learning_rate: of the next step; a number on the weights' device lets a step be captured in a CUDA graph.
        found_inf: where it is set before a step, a number on the weights' device: 1 lets the step move nothing, and the host
            need not wait to know it.
        steps: how many there were, float32, on the weights' device.
        state: what is kept of each weight that has been moved, by these names; ``steps`` as its ``step``.
    """

    names: tuple[str, ...]
    skips: ClassVar[bool] = False

    def __init__(self, weights: Sequence[Tensor], learning_rate: float | Tensor) -> None:
        self.weights = list(weights)
        self.learning_rate = learning_rate
        self.found_inf: Tensor | None = None
        self.steps = torch.zeros((), device=self.weights[0].device if self.weights else None)
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
                self.state[weight]["step"] = self.steps
        weights, gradients = [weight for weight, _ in moved], [gradient for _, gradient in moved]
        if self.found_inf is None or self.skips:
            self._step(weights, gradients)
            return
        changed = [self.steps, *weights, *(self.state[weight][name] for name in self.names for weight in weights)]
        before = [tensor.clone() for tensor in changed]
        self._step(weights, gradients)
        for tensor, was in zip(changed, before, strict=True):
            torch.where(self.found_inf == 0.0, tensor, was, out=tensor)

    def _step(self, weights: list[Tensor], gradients: list[Tensor]) -> None:
        def kept(name: str) -> list[Tensor]:
            return [self.state[weight][name] for weight in weights]

        self.steps.add_(1.0 if self.found_inf is None or not self.skips else 1.0 - self.found_inf)
        self.move(weights, gradients, kept)

    @abstractmethod
    def move(self, weights: list[Tensor], gradients: list[Tensor], kept: Kept) -> None:
        """Move these weights in place, without a gradient; ``kept(name)``: what is kept of each under that name, to be changed in
        place, too. ``self.steps`` counts this one already. ``self.learning_rate`` may be a tensor: nothing may be read back to
        the host."""


class Adam(Optimizer):
    """Adam after Kingma and Ba 2015 (algorithm 1), in one pass over all weights: four times faster than a loop on a CPU.

    It does and keeps what ``torch.optim.Adam(fused=True)`` does and keeps, with torch's default decays.
    """

    names = ("exp_avg", "exp_avg_sq")
    skips = True

    def __init__(self, weights: Sequence[Tensor], learning_rate: float, *, epsilon: float) -> None:
        super().__init__(weights, learning_rate)
        self._epsilon = epsilon

    def move(self, weights: list[Tensor], gradients: list[Tensor], kept: Kept) -> None:
        torch._fused_adam_(
            weights,
            gradients,
            kept("exp_avg"),
            kept("exp_avg_sq"),
            [],
            [self.steps] * len(weights),
            lr=self.learning_rate,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            eps=self._epsilon,
            amsgrad=False,
            maximize=False,
            grad_scale=None,
            found_inf=self.found_inf,
        )


class RMSProp(Optimizer):
    """Moves ``weights`` along ``g / sqrt(mean(g^2) + epsilon)``, or, ``centred``, ``g / sqrt(mean(g^2) - mean(g)^2 + epsilon)``.

    The means forget by ``decay``; with ``momentum`` m, the quotients are added up and each sum shrinks to m of itself. After
    Graves 2013 ("Generating Sequences With Recurrent Neural Networks", eq. 38 to 41), which the published numbers for Ape-X and
    IMPALA mean: 0.01 under the root is 0.1 beside it, where ``torch.optim.RMSprop`` has its own. The variance is kept from being
    negative, which rounding would make it wherever a gradient stands still: torch's centred form then gives NaN.

    What it keeps of each weight has the names that torch's own has.
    """

    def __init__(
        self,
        weights: Sequence[Tensor],
        learning_rate: float,
        *,
        decay: float,
        epsilon: float,
        momentum: float = 0.0,
        centred: bool = False,
    ) -> None:
        super().__init__(weights, learning_rate)
        self._decay, self._epsilon, self._momentum, self._centred = decay, epsilon, momentum, centred
        mean, sums = ("grad_avg",) if centred else (), ("momentum_buffer",) if momentum else ()
        self.names = ("square_avg", *mean, *sums)

    def move(self, weights: list[Tensor], gradients: list[Tensor], kept: Kept) -> None:
        torch._foreach_mul_(kept("square_avg"), self._decay)
        torch._foreach_addcmul_(kept("square_avg"), gradients, gradients, 1.0 - self._decay)
        if self._centred:
            torch._foreach_lerp_(kept("grad_avg"), gradients, 1.0 - self._decay)
            roots = list(torch._foreach_addcmul(kept("square_avg"), kept("grad_avg"), kept("grad_avg"), -1.0))
            torch._foreach_clamp_min_(roots, 0.0)
            torch._foreach_add_(roots, self._epsilon)
        else:
            roots = list(torch._foreach_add(kept("square_avg"), self._epsilon))
        torch._foreach_sqrt_(roots)
        moved = list(torch._foreach_div(gradients, roots))
        if self._momentum:
            torch._foreach_mul_(kept("momentum_buffer"), self._momentum)
            torch._foreach_add_(kept("momentum_buffer"), moved)
            moved = kept("momentum_buffer")
        if isinstance(self.learning_rate, Tensor):
            torch._foreach_sub_(weights, torch._foreach_mul(moved, self.learning_rate))
        else:
            torch._foreach_add_(weights, moved, alpha=-self.learning_rate)

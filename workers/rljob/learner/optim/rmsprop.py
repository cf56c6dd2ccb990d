"""RMSProp as the papers on Atari use it: epsilon under the root, and a centred form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def state_names(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the tensors that are kept for each weight, beside ``step``."""
    centred = ("grad_avg",) if settings["centered"] else ()
    return ("square_avg", *centred, *(("momentum_buffer",) if settings["momentum"] else ()))


class RMSProp(torch.optim.Optimizer):
    """Moves ``weights`` along ``g / sqrt(mean(g^2) + epsilon)``, or, ``centred``, ``g / sqrt(mean(g^2) - mean(g)^2 + epsilon)``.

    The means forget by ``decay``; with ``momentum`` m, the quotients are added up and each sum shrinks to m of itself. After
    Graves 2013 ("Generating Sequences With Recurrent Neural Networks", eq. 38 to 41), which the published numbers for Ape-X and
    IMPALA mean: 0.01 under the root is 0.1 beside it, where ``torch.optim.RMSprop`` has its own. The variance is kept from being
    negative, which rounding would make it wherever a gradient stands still: torch's centred form then gives NaN.

    What it keeps of each weight has the names that torch's own has. ``found_inf``, where it is set before a step, is a number on
    the weights' device: 1 lets the step move nothing, without anybody waiting to know it. The learning rate of a group may be a
    number on that device, too; then a step can be captured in a CUDA graph.
    """

    found_inf: Tensor | None = None

    def __init__(
        self,
        weights: Sequence[Tensor],
        *,
        learning_rate: float,
        decay: float,
        epsilon: float,
        momentum: float = 0.0,
        centred: bool = False,
    ) -> None:
        defaults = {"lr": learning_rate, "alpha": decay, "eps": epsilon, "momentum": momentum, "centered": centred}
        super().__init__(list(weights), defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Move every weight that has a gradient."""
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                self._move(weights, group)

    def _move(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        states = [self.state[weight] for weight in weights]
        for weight, state in zip(weights, states, strict=True):
            if not state:
                state["step"] = torch.zeros((), device=weight.device)
                state.update({name: torch.zeros_like(weight) for name in state_names(group)})

        def of(name: str) -> list[Tensor]:
            return [state[name] for state in states]

        decay, momentum, moves = group["alpha"], group["momentum"], None
        if self.found_inf is not None:  # a gradient of 0, and nothing forgotten
            moves = self.found_inf == 0.0
            gradients = [torch.where(moves, gradient, 0.0) for gradient in gradients]
            decay, momentum = torch.where(moves, decay, 1.0), torch.where(moves, momentum, 1.0)
        if moves is None:
            torch._foreach_add_(of("step"), 1.0)
        else:
            torch._foreach_add_(of("step"), [moves.float()] * len(states))
        torch._foreach_mul_(of("square_avg"), decay)
        torch._foreach_addcmul_(of("square_avg"), gradients, gradients, 1.0 - group["alpha"])
        if group["centered"]:
            if moves is None:
                torch._foreach_lerp_(of("grad_avg"), gradients, 1.0 - group["alpha"])
            else:
                torch._foreach_mul_(of("grad_avg"), decay)
                torch._foreach_add_(of("grad_avg"), gradients, alpha=1.0 - group["alpha"])
            roots = list(torch._foreach_addcmul(of("square_avg"), of("grad_avg"), of("grad_avg"), -1.0))
            torch._foreach_clamp_min_(roots, 0.0)
            torch._foreach_add_(roots, group["eps"])
        else:
            roots = list(torch._foreach_add(of("square_avg"), group["eps"]))
        torch._foreach_sqrt_(roots)
        if group["momentum"]:
            torch._foreach_mul_(of("momentum_buffer"), momentum)
            torch._foreach_addcdiv_(of("momentum_buffer"), gradients, roots)
            sums = of("momentum_buffer")
            if moves is not None:
                sums = list(torch._foreach_mul(sums, moves.float()))
            if isinstance(group["lr"], Tensor):
                torch._foreach_sub_(weights, torch._foreach_mul(sums, group["lr"]))
            else:
                torch._foreach_add_(weights, sums, alpha=-group["lr"])
        elif isinstance(group["lr"], Tensor):
            moved = torch._foreach_div(gradients, roots)
            torch._foreach_mul_(moved, group["lr"])
            torch._foreach_sub_(weights, moved)
        else:
            torch._foreach_addcdiv_(weights, gradients, roots, -group["lr"])

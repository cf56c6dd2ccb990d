"""The policies that a network's numbers are, for learners, in torch: choices and continuous numbers, all independent.

Numbers of a network are [..., K], K = sum(sizes) + 2 * controls: logits of each value of each choice, means, and logarithms of
deviations. Log-probabilities and entropies add up, and the value of an action is the mean of its choices' (Seyde et al. 2023,
"Solving continuous control via Q-learning"), so that the best action is the best value of each. What is learned from is the draw
of a Gaussian as it was drawn; that the environment's edge clips it, or takes its tanh, changes no ratio of two policies. The same
for actors is in ``rljob.choices``.
"""

from dataclasses import dataclass
from math import log
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from rljob.choices import FORBIDDEN, HALF_LOG_2PI

SMALLEST_LOG_STD: Final = -5.0
LARGEST_LOG_STD: Final = 2.0
"""A free deviation drifts: below, where a policy has become sure of itself, until its exponential is 0."""


@dataclass(frozen=True, slots=True)
class TensorChoices:
    """``sizes``: how many values each choice has. Numbers of a network are [..., K], actions int64 [...] or [..., choices]."""

    sizes: tuple[int, ...]

    def taken(self, values: Tensor, action: Tensor) -> Tensor:
        """The values [...] of what ``action`` chose, the mean over its choices."""
        if len(self.sizes) == 1:
            return values.gather(-1, action.unsqueeze(-1)).squeeze(-1)
        return values.gather(-1, action + self._starts(action)).mean(-1)

    def best(self, values: Tensor) -> Tensor:
        """The action with the largest values."""
        chosen = [part.argmax(dim=-1) for part in self.parts(values)]
        return chosen[0] if len(chosen) == 1 else torch.stack(chosen, dim=-1)

    def log_policy(self, logits: Tensor) -> Tensor:
        """Log-probabilities [..., K] within each choice."""
        if len(self.sizes) == 1:
            return functional.log_softmax(logits, dim=-1)
        return torch.cat([functional.log_softmax(part, dim=-1) for part in self.parts(logits)], dim=-1)

    def log_prob(self, log_policy: Tensor, action: Tensor) -> Tensor:
        """log pi(a|s) [...], the sum over the choices of ``action``."""
        if len(self.sizes) == 1:
            return self.taken(log_policy, action)
        return log_policy.gather(-1, action + self._starts(action)).sum(-1)

    def entropy(self, log_policy: Tensor) -> Tensor:
        """In nats [...], the sum over the choices."""
        return -(log_policy.exp() * log_policy).sum(-1)

    def parts(self, numbers: Tensor) -> tuple[Tensor, ...]:
        """Those of each choice."""
        return torch.split(numbers, list(self.sizes), dim=-1)

    def _starts(self, action: Tensor) -> Tensor:
        return torch.tensor([sum(self.sizes[:index]) for index in range(len(self.sizes))], device=action.device)


def masked(numbers: Tensor, allowed: Tensor) -> Tensor:
    """``numbers`` [..., K] of a network, with those of what is not ``allowed`` (bool) made ``FORBIDDEN``, without a gradient."""
    return torch.where(allowed, numbers, FORBIDDEN)


class _Bounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, log_std: Tensor) -> Tensor:
        ctx.save_for_backward(log_std)
        return log_std.clamp(SMALLEST_LOG_STD, LARGEST_LOG_STD)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (log_std,) = ctx.saved_tensors
        outwards = torch.where(gradient > 0.0, log_std <= SMALLEST_LOG_STD, log_std >= LARGEST_LOG_STD)
        return gradient.masked_fill(outwards, 0.0)


def bounded_log_std(log_std: Tensor) -> Tensor:
    """``log_std`` within its bounds. Beyond them it has the gradient that leads back in: with a clamp's own, which is 0 there, a
    deviation that once got out would never change again."""
    learns = log_std.requires_grad and torch.is_grad_enabled()  # a trace takes no function of one's own
    return _Bounded.apply(log_std) if learns else log_std.clamp(SMALLEST_LOG_STD, LARGEST_LOG_STD)  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class ActionDistribution:
    """``sizes``: how many values each choice has. ``controls``: how many continuous numbers stand beside them.

    Actions are int64 [...], or [..., choices], and float32 [..., controls], None without any.
    """

    sizes: tuple[int, ...]
    controls: int = 0

    def normalised(self, numbers: Tensor) -> Tensor:
        """``numbers`` [..., K] with logits as log-probabilities within each choice; what else there is stays."""
        if not self.controls:
            return self._choices.log_policy(numbers)
        logits, *gaussian = self.split(numbers)
        return torch.cat([self._choices.log_policy(logits), *gaussian] if self.sizes else gaussian, dim=-1)

    def log_prob(self, normalised: Tensor, action: Tensor, control: Tensor | None) -> Tensor:
        """log pi(a|s) [...] of what ``normalised`` gives: probabilities of choices, densities of continuous numbers."""
        if not self.controls:
            return self._choices.log_prob(normalised, action)
        assert control is not None, "a policy of continuous numbers is asked about some"
        log_policy, mean, log_std = self.split(normalised)
        found = gaussian_log_prob(mean, log_std, control)
        return found + self._choices.log_prob(log_policy, action) if self.sizes else found

    def entropy(self, normalised: Tensor) -> Tensor:
        """In nats [...]; that of continuous numbers is of a density and may be negative."""
        if not self.controls:
            return self._choices.entropy(normalised)
        log_policy, _, log_std = self.split(normalised)
        found = (log_std + (HALF_LOG_2PI + 0.5)).sum(-1)
        return found + self._choices.entropy(log_policy) if self.sizes else found

    def mode(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """The most probable choices, and the means of continuous numbers [..., controls]."""
        logits, mean, _ = self.split(numbers)
        return (self._choices.best(logits) if self.sizes else logits.long()), mean

    def split(self, numbers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``numbers`` as logits, means and logarithms of deviations."""
        logits, mean, log_std = torch.split(numbers, [sum(self.sizes), self.controls, self.controls], dim=-1)
        return logits, mean, log_std

    @property
    def _choices(self) -> TensorChoices:
        return TensorChoices(self.sizes)


def gaussian_log_prob(mean: Tensor, log_std: Tensor, control: Tensor) -> Tensor:
    """The logarithm [...] of the density at ``control`` [..., controls], the sum over its numbers."""
    distance = (control - mean) * torch.exp(-log_std)
    return -(0.5 * distance.square() + log_std + HALF_LOG_2PI).sum(-1)


def tanh_gaussian_log_prob(mean: Tensor, log_std: Tensor, control: Tensor) -> Tensor:
    """The same of ``tanh(control)``, in the bounds -1 and 1, from the draw before the tanh.

    The logarithm of its slope is ``2 (log 2 - u - softplus(-2u))``, right for any ``u``; ``log(1 - tanh(u) ** 2)`` is that of 0
    from 9 on in float32.
    """
    slope = 2.0 * (log(2.0) - control - functional.softplus(-2.0 * control))
    return gaussian_log_prob(mean, log_std, control) - slope.sum(-1)

"""What was chosen, for a learner: the values and log-probabilities of actions that are one choice or several, in torch.

Actions, numbers of a network and what is not allowed are as in ``rljob.choices``, which is the same for actors. Choices
are independent: log-probabilities and entropies add up, and the value of an action is the mean of its choices' (Seyde et al.
2023, "Solving continuous control via Q-learning"), so that the best action is the best value of each.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from rljob.choices import FORBIDDEN


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

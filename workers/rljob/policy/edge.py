"""From a policy's numbers to actions as an environment's own space has them, in torch, for exported policies."""

import torch
from torch import Tensor

from rljob.algorithms.distributions import ActionDistribution
from rljob.envs.spec import ActionLeaf, EnvironmentSpec


class TensorEdge:
    """What ``Encoding.action`` makes of the most probable action, as a part of a graph of tensors."""

    def __init__(self, spec: EnvironmentSpec, *, squashes: bool) -> None:
        self._leaves, self._squashes = spec.action, squashes
        self._policies = ActionDistribution(spec.action_sizes, spec.controls)

    def actions(self, numbers: Tensor) -> tuple[Tensor, ...]:
        """One tensor [N, *shape] of each leaf."""
        chosen, mean = self._policies.mode(numbers)
        if chosen.dim() == 1:
            chosen = chosen.unsqueeze(1)
        found = []
        for leaf in self._leaves:
            count = len(leaf.low) or len(leaf.sizes)
            if leaf.low:
                values, mean = self._bounded(mean[:, :count], leaf), mean[:, count:]
            else:
                values, chosen = chosen[:, :count] + torch.tensor(leaf.start), chosen[:, count:]
            found.append(values.to(getattr(torch, leaf.dtype)).reshape(-1, *leaf.shape))
        return tuple(found)

    def _bounded(self, numbers: Tensor, leaf: ActionLeaf) -> Tensor:
        low, high = torch.tensor(leaf.low, dtype=torch.float64), torch.tensor(leaf.high, dtype=torch.float64)
        scaled = torch.isfinite(low) & torch.isfinite(high)
        numbers = numbers.double()
        share = 0.5 + 0.5 * (torch.tanh(numbers) if self._squashes else numbers.clamp(-1.0, 1.0))
        inside = (1.0 - share) * torch.where(scaled, low, 0.0) + share * torch.where(scaled, high, 0.0)
        return torch.minimum(torch.maximum(torch.where(scaled, inside, numbers), low), high)

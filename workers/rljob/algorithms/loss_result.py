"""What a loss gives back, whatever the algorithm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class LossResult(NamedTuple):
    """The loss of a batch, and what else the loops want to know of it.

    value: float32 scalar to differentiate; the mean over the batch, or, with ``summed``, the sum.
    metrics: detached scalars by name, means over the batch; at least those that ``Algorithm.metrics`` names.
    td_abs: float32 [B], detached; the absolute temporal-difference errors that new priorities are made of. None where there is
    no replay.
    divergence: detached scalar, the mean divergence in nats from the policy that acted; what an adaptive learning rate follows.
    None where nobody asks for it.
    """

    value: Tensor
    metrics: Mapping[str, Tensor]
    td_abs: Tensor | None = None
    divergence: Tensor | None = None
    summed: bool = False

    def weight(self, share: float) -> float:
        """That of this loss of a micro-batch in the loss of the whole, of which it is ``share``."""
        return 1.0 if self.summed else share

    @classmethod
    def joined(cls, results: Sequence[LossResult], shares: Sequence[float]) -> LossResult:
        """The result of a batch from those of its micro-batches, added up in their order; detached."""
        first = results[0]
        weights = torch.tensor(list(shares), device=first.value.device)

        def mean(values: Sequence[Tensor]) -> Tensor:
            return torch.stack(list(values)) @ weights

        value = torch.zeros_like(first.value, requires_grad=False)
        for result, share in zip(results, shares, strict=True):
            value += result.value.detach() * result.weight(share)
        errors = [result.td_abs for result in results if result.td_abs is not None]
        divergences = [result.divergence for result in results if result.divergence is not None]
        return cls(
            value,
            {name: mean([result.metrics[name] for result in results]) for name in first.metrics},
            torch.cat(errors) if errors else None,
            mean(divergences) if divergences else None,
            first.summed,
        )

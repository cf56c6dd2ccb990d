"""The gradient of one batch on several cores of a CPU: each thread takes an equal share of the batch from end to end.

Torch's own threads share out every single operation and meet after each, some two hundred times an update, spinning until the
last arrives. Beside actors and a replay service on the same cores, one that is not running at that moment holds up all
others each time. Threads with a share of the batch each meet once an update, and sleep until then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from rljob.algorithms.apex_dqn import Batch, Loss


class Shares:
    """Splits batches into ``count`` >= 2 shares. From then on torch itself computes in one thread in this process.

    The loss must be a mean over the batch; what comes out is the mean over all shares, equal to the loss of the whole batch but
    for the order of summation, and always in the same order.
    """

    def __init__(self, count: int) -> None:
        if count < 2:
            raise ValueError(f"a batch in {count} shares needs no threads; 2 or more do")
        torch.set_num_threads(1)
        self._count = count
        self._pool = ThreadPoolExecutor(count - 1, thread_name_prefix="share")

    def gradient(
        self, loss: Callable[[Batch], Loss], batch: Batch, parameters: Sequence[Tensor]
    ) -> tuple[Loss, list[Tensor]]:
        """The loss of ``batch``, detached, and its gradient by every parameter (all of them must take part), in float32."""
        size = len(batch.action)

        def learn(share: Batch) -> tuple[Loss, tuple[Tensor, ...]]:
            # The cache of cast weights is one for all threads: a cast made by one without a gradient must not reach another.
            torch.set_autocast_cache_enabled(False)
            result = loss(share)
            weight = len(share.action) / size
            metrics = {name: metric * weight for name, metric in result.metrics.items()}
            value = result.value * weight
            return Loss(value.detach(), result.td_abs, metrics), torch.autograd.grad(value, parameters)

        first, *rest = (Batch(*parts) for parts in zip(*(t.tensor_split(self._count) for t in batch), strict=True))
        others = [self._pool.submit(learn, share) for share in rest]
        losses, gradients = zip(learn(first), *(other.result() for other in others), strict=True)
        total = [gradient.float() for gradient in gradients[0]]
        for more in gradients[1:]:
            torch._foreach_add_(total, more)
        joined = Loss(
            sum((each.value for each in losses[1:]), losses[0].value),
            torch.cat([each.td_abs for each in losses]),
            {
                name: sum((each.metrics[name] for each in losses[1:]), first)
                for name, first in losses[0].metrics.items()
            },
        )
        return joined, total

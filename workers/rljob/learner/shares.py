"""The gradient of one update on several cores of a CPU: each thread learns from one piece of it, from end to end.

Torch's own threads share out every single operation and meet after each, some two hundred times an update, spinning until the
last arrives. Beside actors and a replay service on the same cores, one that is not running at that moment holds up all
others each time. Threads with a piece each meet once an update, and sleep until then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

from rljob.algorithms.piece import Piece

Loss = TypeVar("Loss")


class Shares:
    """``count`` >= 2 threads for the pieces of an update. From then on torch itself computes in one thread in this process."""

    def __init__(self, count: int) -> None:
        if count < 2:
            raise ValueError(f"an update in {count} pieces needs no threads; 2 or more do")
        torch.set_num_threads(1)
        self.count = count
        self._pool = ThreadPoolExecutor(count - 1, thread_name_prefix="share")

    def gradient(
        self, loss: Callable[[Piece], tuple[Loss, Tensor]], pieces: Sequence[Piece], parameters: Sequence[Tensor]
    ) -> tuple[list[Loss], list[Tensor]]:
        """The losses of all pieces, and the sum of their gradients by every parameter, in float32.

        ``loss`` answers a piece's loss and the number to differentiate, in which all parameters must take part. The order of
        summation is always the same. Raises what ``loss`` raises.
        """

        def learn(piece: Piece) -> tuple[Loss, list[Tensor]]:
            # The cache of cast weights is one for all threads: a cast made by one without a gradient must not reach another.
            torch.set_autocast_cache_enabled(False)
            result, value = loss(piece)
            return result, [gradient.float() for gradient in torch.autograd.grad(value, parameters)]

        first, *rest = pieces
        others = [self._pool.submit(learn, piece) for piece in rest]
        results = [learn(first), *(other.result() for other in others)]
        total = results[0][1]
        for _, gradients in results[1:]:
            torch._foreach_add_(total, gradients)
        return [result for result, _ in results], total

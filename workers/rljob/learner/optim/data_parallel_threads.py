"""The work of one update on several cores of a CPU: each thread does an equal share of it.

Torch's own threads share out every single operation and meet after each, some two hundred times an update, spinning until the
last arrives. Beside actors and a replay service on the same cores, one that is not running at that moment holds up all
others each time. Threads with a share each meet three times an update, and sleep until then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


class DataParallelThreads:
    """``count`` threads for the shares of an update, the caller's among them.

    With more than one, torch itself computes in one thread in this process from then on.
    """

    def __init__(self, count: int = 1) -> None:
        if count < 1:
            raise ValueError(f"{count} threads cannot compute; 1 or more can")
        self.count = count
        self._pool = ThreadPoolExecutor(count - 1, thread_name_prefix="share") if count > 1 else None
        if count > 1:
            torch.set_num_threads(1)

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """``work`` of each of at most ``count`` items, at the same time; the results in their order. Raises what it raises."""
        if self._pool is None:
            return [work(item) for item in items]
        first, *rest = items
        others = [self._pool.submit(work, item) for item in rest]
        return [work(first), *(other.result() for other in others)]

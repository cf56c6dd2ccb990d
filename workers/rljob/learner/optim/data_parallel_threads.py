"""The work of one update on several cores of a CPU: each thread does an equal share of it, of the batch or of
all tensors' numbers.

Torch's own threads share out every single operation and meet after each, some two hundred times an update, spinning until the
last arrives. Beside actors and a replay service on the same cores, one that is not running at that moment holds up all
others each time. Threads with a share each meet three times an update, and sleep until then.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

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
        """``work`` of each item, ``count`` at the same time; the results in their order. Raises what it raises."""
        if self._pool is None:
            return [work(item) for item in items]
        first, *rest = items
        others = [self._pool.submit(work, item) for item in rest]
        return [work(first), *(other.result() for other in others)]


@dataclass(frozen=True, slots=True)
class ParameterSlice:
    """Numbers ``start`` to ``stop`` (in their order in memory) of the ``index``-th of some tensors."""

    index: int
    start: int
    stop: int

    def view(self, tensor: Tensor) -> Tensor:
        """A view [stop - start] of these numbers, without a gradient. The tensor must be dense: each number once, no gaps."""
        plain = tensor.detach()
        return plain.as_strided((self.stop - self.start,), (1,), plain.storage_offset() + self.start)

    def select(self, tensors: Sequence[Tensor]) -> Tensor:
        """The same view of the tensor that this is a slice of."""
        return self.view(tensors[self.index])


@dataclass(frozen=True, slots=True)
class WholeParameter(ParameterSlice):
    """All numbers of the ``index``-th of some tensors, in its own shape."""

    def view(self, tensor: Tensor) -> Tensor:
        """The tensor itself, without a gradient."""
        return tensor.detach()


def shard_evenly(sizes: Sequence[int], count: int) -> list[list[ParameterSlice]]:
    """What each of ``count`` threads works on, of tensors with so many numbers: shards of about equal length, none empty."""
    total = sum(sizes)
    edges = [total * shard // count for shard in range(count + 1)]
    shards: list[list[ParameterSlice]] = [[] for _ in range(count)]
    before = 0
    for index, size in enumerate(sizes):
        for shard, start, stop in zip(shards, edges, edges[1:], strict=False):
            first, last = max(start - before, 0), min(stop - before, size)
            if first < last:
                shard.append(ParameterSlice(index, first, last))
        before += size
    return [shard for shard in shards if shard]


def shard_whole(sizes: Sequence[int], count: int) -> list[list[ParameterSlice]]:
    """The same with every tensor in one shard: the largest ones first, each to the thread that has least."""
    shards: list[list[ParameterSlice]] = [[] for _ in range(count)]
    loads = [0] * count
    for index in sorted((index for index, size in enumerate(sizes) if size), key=lambda index: (-sizes[index], index)):
        least = loads.index(min(loads))
        shards[least].append(WholeParameter(index, 0, sizes[index]))
        loads[least] += sizes[index]
    return [shard for shard in shards if shard]

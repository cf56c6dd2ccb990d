"""Tensors divided into equal slices of all their numbers, so that several threads can each change one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


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

"""Tensors cut into equal parts of all their numbers, so that several threads can each change one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Cut:
    """Numbers ``start`` to ``stop`` (in their order in memory) of the ``index``-th of some tensors."""

    index: int
    start: int
    stop: int

    def of(self, tensor: Tensor) -> Tensor:
        """A view [stop - start] of these numbers, without a gradient. The tensor must be dense: each number once, no gaps."""
        plain = tensor.detach()
        return plain.as_strided((self.stop - self.start,), (1,), plain.storage_offset() + self.start)

    def among(self, tensors: Sequence[Tensor]) -> Tensor:
        """The same of the tensor that it is a part of."""
        return self.of(tensors[self.index])


def cuts(sizes: Sequence[int], count: int) -> list[list[Cut]]:
    """What each of ``count`` threads works on, of tensors with so many numbers: runs of about equal length in all, none empty."""
    total = sum(sizes)
    edges = [total * share // count for share in range(count + 1)]
    parts: list[list[Cut]] = [[] for _ in range(count)]
    before = 0
    for index, size in enumerate(sizes):
        for part, start, stop in zip(parts, edges, edges[1:], strict=False):
            first, last = max(start - before, 0), min(stop - before, size)
            if first < last:
                part.append(Cut(index, first, last))
        before += size
    return [part for part in parts if part]

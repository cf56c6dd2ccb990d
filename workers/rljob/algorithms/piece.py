"""A piece of what an update learns from, so that several cores can each learn from one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple


class Piece(NamedTuple):
    """``part`` is what the algorithm's ``loss`` takes; ``share`` (0..1) how much of the whole it is. ``weight`` is that of its
    loss in the loss of the whole: its share where that is a mean, 1 where it is a sum."""

    part: Any
    share: float
    weight: float


def slices(size: int, count: int) -> Iterator[tuple[slice, float]]:
    """``size`` items in ``count`` runs of about equal length, none empty: (which, share of the whole)."""
    count = min(size, count)
    edges = [size * index // count for index in range(count + 1)]
    for start, end in pairwise(edges):
        yield slice(start, end), (end - start) / size

"""One random generator for environments that act in groups, one group after the other."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class GroupedDraws:
    """What each of ``groups`` groups of environments draws is its share of what all of them would draw at once.

    So a run in groups makes the same random choices as a run without. A step begins with group 0; the numbers that it
    draws are drawn for all groups, and the others take theirs in the order of their calls. A group that calls otherwise
    than group 0 did (weights arrived between the two) draws afresh. Offers the calls of ``numpy.random.Generator`` that
    acting uses; the first extent of ``size`` is the number of environments of one group.
    """

    def __init__(self, generator: np.random.Generator, groups: int) -> None:
        self._generator = generator
        self._groups = groups
        self._drawn: list[tuple[tuple[Any, ...], NDArray[Any]]] = []
        self._group = 0
        self._next = 0

    def turn_of(self, group: int) -> None:
        """The draws from now on are for ``group``; 0 begins a new step."""
        if group == 0:
            self._drawn.clear()
        self._group = group
        self._next = 0

    def random(self, size: int | tuple[int, ...]) -> NDArray[np.float64]:
        """As ``Generator.random``."""
        return self._share("random", (), size)

    def integers(self, low: int, high: int, size: int | tuple[int, ...]) -> NDArray[np.int64]:
        """As ``Generator.integers``."""
        return self._share("integers", (low, high), size)

    def _share(self, name: str, bounds: tuple[int, ...], size: int | tuple[int, ...]) -> NDArray[Any]:
        rows, *rest = (size,) if isinstance(size, int) else size
        call = (name, bounds, rows, *rest)
        place, self._next = self._next, self._next + 1
        if place >= len(self._drawn) or self._drawn[place][0] != call:
            self._drawn[place:] = [(call, getattr(self._generator, name)(*bounds, (rows * self._groups, *rest)))]
        return self._drawn[place][1][self._group * rows : (self._group + 1) * rows]

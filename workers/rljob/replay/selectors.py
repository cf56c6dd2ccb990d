"""Which transitions a sample takes: in proportion to priority, uniformly, or oldest first and once."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rljob.replay.sumtree import SumTree

Array = NDArray[Any]

LOWEST_PRIORITY = 1e-6
"""Priorities below this are raised to it, so that no stored transition becomes impossible to sample."""

HIGHEST_PRIORITY = 1e6
"""Priorities above this are cut to it: one diverged TD error must not own every batch."""


class Selector(Protocol):
    """Chooses among slot ids ``0..capacity-1``. Ids of a chunk are consecutive; all arrays are [n]."""

    exponent: float
    """Weight = priority ** exponent."""

    def assign(self, first: int, priorities: Array) -> None:
        """Give ``len(priorities)`` ids from ``first`` on new contents; priority 0 means that there is none."""

    def update(self, ids: Array, priorities: Array) -> None:
        """Change the priorities of eligible ids."""

    def sample(self, count: int, generator: np.random.Generator) -> tuple[Array, Array]:
        """(ids intp[count], probability of each f8[count]). Raises ``ValueError`` when too few are eligible."""

    @property
    def priority_total(self) -> float:
        """Sum of the weights of all eligible ids; what the probabilities are fractions of."""

    def weights(self, first: int, count: int) -> Array:
        """The weights f8[count] of ids from ``first`` on."""

    def restore(self, first: int, weights: Array) -> None:
        """Put back what ``weights`` returned."""


class Prioritized:
    """P(i) = p_i^exponent / sum of p^exponent (Schaul et al. 2016, eq. 1), drawn with replacement, stratified."""

    def __init__(self, capacity: int, exponent: float) -> None:
        if not 0.0 <= exponent <= 4.0:
            raise ValueError(f"priority exponent is {exponent}, it must lie between 0 (uniform) and 4")
        self.exponent = exponent
        self.tree = SumTree(capacity)

    def assign(self, first: int, priorities: Array) -> None:
        """See ``Selector.assign``."""
        weights = self._weights(priorities)
        weights[priorities == 0.0] = 0.0
        self.tree.update_range(first, weights)

    def update(self, ids: Array, priorities: Array) -> None:
        """See ``Selector.update``."""
        self.tree.update(ids, self._weights(priorities))

    def sample(self, count: int, generator: np.random.Generator) -> tuple[Array, Array]:
        """See ``Selector.sample``."""
        ids, weights = self.tree.sample(count, generator)
        return ids, weights / self.tree.total

    @property
    def priority_total(self) -> float:
        """Sum of p^exponent."""
        return self.tree.total

    def weights(self, first: int, count: int) -> Array:
        """See ``Selector.weights``."""
        return self.tree.leaves[first : first + count]

    def restore(self, first: int, weights: Array) -> None:
        """See ``Selector.restore``."""
        self.tree.update_range(first, weights)

    def _weights(self, priorities: Array) -> Array:
        clipped = np.clip(priorities.astype(np.float64), LOWEST_PRIORITY, HIGHEST_PRIORITY)
        weights: Array = clipped**self.exponent
        return weights


class Uniform(Prioritized):
    """Every stored transition equally likely, whatever its priority: exponent 0."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, exponent=0.0)

    def update(self, ids: Array, priorities: Array) -> None:
        """Nothing depends on priorities."""


class Fifo:
    """Each transition once, oldest first: the queue of on-policy algorithms."""

    exponent = 0.0

    def __init__(self, capacity: int) -> None:
        self._waiting: deque[int] = deque(maxlen=capacity)

    def assign(self, first: int, priorities: Array) -> None:
        """See ``Selector.assign``; what was waiting in these ids and not sampled in time is gone."""
        stop = first + len(priorities)
        waiting = (i for i in self._waiting if not first <= i < stop)
        self._waiting = deque(waiting, maxlen=self._waiting.maxlen)
        self._waiting.extend((first + np.flatnonzero(priorities > 0.0)).tolist())

    def update(self, ids: Array, priorities: Array) -> None:
        """Order of arrival is the only priority."""

    def sample(self, count: int, generator: np.random.Generator) -> tuple[Array, Array]:
        """The oldest ``count``, which are then gone. Raises ``ValueError`` when fewer are waiting."""
        if len(self._waiting) < count:
            raise ValueError(f"fifo sample of {count} with {len(self._waiting)} waiting")
        return np.array([self._waiting.popleft() for _ in range(count)], np.intp), np.ones(count)

    @property
    def priority_total(self) -> float:
        """Transitions waiting."""
        return float(len(self._waiting))

    def weights(self, first: int, count: int) -> Array:
        """1 for ids still waiting."""
        waiting = np.fromiter(self._waiting, np.int64, len(self._waiting)) - first
        weights = np.zeros(count)
        weights[waiting[(waiting >= 0) & (waiting < count)]] = 1.0
        return weights

    def restore(self, first: int, weights: Array) -> None:
        """Queue again what was waiting; call oldest first."""
        self.assign(first, weights)

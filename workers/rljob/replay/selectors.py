"""Which transitions a sample takes: in proportion to priority, or uniformly when the exponent is 0."""

import numpy as np

from rljob.observation import Array
from rljob.replay.sumtree import SumTree

LOWEST_PRIORITY = 1e-6
"""Priorities below this are raised to it, so that no stored transition becomes impossible to sample."""

HIGHEST_PRIORITY = 1e6
"""Priorities above this are cut to it: one diverged TD error must not fill every batch."""


class Prioritized:
    """P(i) = p_i^exponent / sum of p^exponent (Schaul et al. 2016, eq. 1), drawn with replacement, stratified.

    Chooses among slot ids ``0..capacity-1``. Ids of a chunk are consecutive; all arrays are [n].
    """

    def __init__(self, capacity: int, exponent: float) -> None:
        if not 0.0 <= exponent <= 4.0:
            raise ValueError(f"priority exponent is {exponent}, it must lie between 0 (uniform) and 4")
        self.exponent = exponent
        self.tree = SumTree(capacity)

    def assign(self, first: int, priorities: Array) -> None:
        """Give ``len(priorities)`` ids from ``first`` on new contents; priority 0 means that there is none."""
        weights = self._weights(priorities)
        weights[priorities == 0.0] = 0.0
        self.tree.update_range(first, weights)

    def update(self, ids: Array, priorities: Array) -> None:
        """Change the priorities of ids that have contents."""
        self.tree.update(ids, self._weights(priorities))

    def sample(self, count: int, generator: np.random.Generator) -> tuple[Array, Array]:
        """(ids intp[count], probability of each f8[count]). Raises ``ValueError`` when no id has contents."""
        ids, weights = self.tree.sample(count, generator)
        return ids, weights / self.tree.total

    @property
    def priority_total(self) -> float:
        """Sum of the weights priority ** exponent of all ids; what the probabilities are fractions of."""
        return self.tree.total

    def priority_drift(self) -> float:
        """Relative error of that sum from rounding; computed anew from all weights at each call."""
        return self.tree.drift()

    def weights(self, first: int, count: int) -> Array:
        """The weights f8[count] of ids from ``first`` on."""
        return self.tree.leaves[first : first + count]

    def restore(self, first: int, weights: Array) -> None:
        """Put back what ``weights`` returned."""
        self.tree.update_range(first, weights)

    def _weights(self, priorities: Array) -> Array:
        return np.clip(priorities.astype(np.float64), LOWEST_PRIORITY, HIGHEST_PRIORITY) ** self.exponent

"""Which transitions a sample takes: in proportion to priority, or uniformly when the exponent is 0."""

from collections.abc import Sequence

import numpy as np

from rljob.observation import Array


class SumTree:
    """``capacity`` non-negative weights and their sums, as one array a level.

    The number of leaves is padded with zeros to a power of two, so that every level halves exactly and prefix order is
    the order of the leaves. Sums are always recomputed from both children, never adjusted by differences: duplicates
    in one update are harmless and rounding errors do not accumulate.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        leaves = 1 << max(0, capacity - 1).bit_length()
        # levels[0] are the leaves, levels[-1] is the root alone.
        self._levels: list[Array] = [np.zeros(leaves >> height) for height in range(leaves.bit_length())]

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self._levels[-1][0])

    @property
    def leaves(self) -> Array:
        """The weights f8[capacity], a read-only view."""
        view = self._levels[0][: self.capacity]
        view.flags.writeable = False
        return view

    def drift(self) -> float:
        """Relative difference between the root and a fresh sum of the leaves: what rounding has done, about 1e-16."""
        fresh = float(self._levels[0].sum())
        return abs(self.total - fresh) / max(fresh, np.finfo(np.float64).tiny)

    def update(self, indices: Array, weights: Array) -> None:
        """Set ``weights`` (f8[n]) at ``indices`` (integers [n]); of duplicates, the last one holds.

        Raises ``IndexError`` or ``ValueError`` before anything is changed.
        """
        if len(indices) == 0:
            return
        if int(indices.min()) < 0 or int(indices.max()) >= self.capacity:
            raise IndexError(f"sum-tree index outside 0..{self.capacity - 1}")
        self._check(weights)
        self._levels[0][indices] = weights
        # Sorted, a repeated parent is one comparison away; numpy's unique() would sort again at every level.
        nodes = np.sort(indices.astype(np.intp) >> 1)
        for below, level in zip(self._levels, self._levels[1:], strict=False):
            if len(level) <= 2 * len(nodes):
                np.add(below[0::2], below[1::2], out=level)
            else:
                first = np.empty(len(nodes), bool)
                first[0] = True
                np.not_equal(nodes[1:], nodes[:-1], out=first[1:])
                nodes = nodes[first]
                pairs = below.reshape(-1, 2)[nodes]
                level[nodes] = pairs[:, 0] + pairs[:, 1]
            nodes = nodes >> 1

    def update_range(self, start: int, weights: Array) -> None:
        """Set the weights of ``len(weights)`` consecutive leaves from ``start`` on; no index arrays needed.

        Raises ``IndexError`` or ``ValueError`` before anything is changed.
        """
        stop = start + len(weights)
        if start == stop:
            return
        if start < 0 or stop > self.capacity:
            raise IndexError(f"sum-tree leaves {start}..{stop - 1} outside 0..{self.capacity - 1}")
        self._check(weights)
        self._levels[0][start:stop] = weights
        for below, level in zip(self._levels, self._levels[1:], strict=False):
            start, stop = start >> 1, (stop + 1) >> 1
            np.add(below[2 * start : 2 * stop : 2], below[2 * start + 1 : 2 * stop : 2], out=level[start:stop])

    def sample(self, counts: int | Sequence[int], generator: np.random.Generator) -> tuple[Array, Array]:
        """Draw leaves in proportion to their weights: one from each of so many equal strata of the total. Of several ``counts``,
        which are several batches, one after the other.

        Returns (indices intp[n], weights f8[n]); every weight is positive. Raises ``ValueError`` when the tree is empty.
        """
        if self.total <= 0.0:
            raise ValueError("sampling from a sum-tree without weight")
        batches = [counts] if isinstance(counts, int) else counts
        strata = [(np.arange(count) + generator.random(count)) * (self.total / max(count, 1)) for count in batches]
        return self.find(np.concatenate(strata))

    def find(self, prefix: Array) -> tuple[Array, Array]:
        """The leaves in which cumulative sums ``prefix`` (f8[n]) fall, with their weights, all positive.

        Prefixes outside [0, total) are clamped to the first or last positive leaf.
        """
        value = np.clip(prefix, 0.0, np.nextafter(self.total, 0.0))
        node = np.zeros(len(value), np.intp)
        for level in reversed(self._levels[:-1]):
            node <<= 1
            left = level[node]
            right = value >= left
            value -= np.where(right, left, 0.0)
            node += right
        weight = self._levels[0][node]
        # Subtraction rounds: now and then a value comes out a hair beyond its subtree and walks into an empty one.
        astray = np.flatnonzero(weight <= 0.0)
        if len(astray):
            node[astray] = self._find_positive(prefix[astray])
            weight = self._levels[0][node]
        return node, weight

    def _find_positive(self, prefix: Array) -> Array:
        # A sum of non-negative numbers is positive only if one of them is, so that descending into positive children
        # alone always ends at a positive leaf, and the zero padding beyond capacity is never entered.
        value = np.clip(prefix, 0.0, self.total)
        node = np.zeros(len(value), np.intp)
        for level in reversed(self._levels[:-1]):
            node <<= 1
            left, right_sum = level[node], level[node + 1]
            right = ((value >= left) & (right_sum > 0.0)) | (left <= 0.0)
            value -= np.where(right, left, 0.0)
            node += right
        return node

    @staticmethod
    def _check(weights: Array) -> None:
        # One comparison catches NaN as well: it is neither >= 0 nor finite.
        if not (float(weights.min()) >= 0.0 and float(weights.max()) < np.inf):
            raise ValueError("sum-tree weights must be finite and not negative")


LOWEST_PRIORITY = 1e-6
"""Priorities below this are raised to it, so that no stored transition becomes impossible to sample."""

HIGHEST_PRIORITY = 1e6
"""Priorities above this are cut to it: one diverged TD error must not fill every batch."""


class Prioritized:
    """P(i) = p_i^exponent / sum of p^exponent (Schaul et al. 2016, eq. 1), drawn with replacement, stratified.

    Chooses among slot ids ``0..capacity-1``, consecutive in a chunk; ``tree`` has their weights, priority ** exponent. All
    arrays are [n].
    """

    def __init__(self, capacity: int, exponent: float) -> None:
        self.exponent = exponent
        self.tree = SumTree(capacity)

    def go_by(self, exponent: float) -> None:
        """Draw by another exponent from now on. With one of 0 priorities were all 1; what is stored then keeps that until it has
        a new one."""
        if exponent != self.exponent:
            weights, power = self.tree.leaves.copy(), exponent / self.exponent if self.exponent else 0.0
            stored = weights > 0.0
            with np.errstate(over="ignore"):
                powers = weights[stored] ** power
            weights[stored] = np.clip(powers, LOWEST_PRIORITY**exponent, HIGHEST_PRIORITY**exponent)
            self.exponent = exponent
            self.tree.update_range(0, weights)

    def assign(self, first: int, priorities: Array) -> None:
        """Give ``len(priorities)`` ids from ``first`` on new contents; priority 0 means that there is none."""
        weights = self._weights(priorities)
        weights[priorities == 0.0] = 0.0
        self.tree.update_range(first, weights)

    def update(self, ids: Array, priorities: Array) -> None:
        """Change the priorities of ids that have contents."""
        self.tree.update(ids, self._weights(priorities))

    def sample(self, counts: int | Sequence[int], generator: np.random.Generator) -> tuple[Array, Array]:
        """(ids intp[n], probability of each f8[n]), as of ``SumTree``. Raises ``ValueError`` when no id has contents."""
        ids, weights = self.tree.sample(counts, generator)
        return ids, weights / self.tree.total

    def _weights(self, priorities: Array) -> Array:
        return np.clip(priorities.astype(np.float64), LOWEST_PRIORITY, HIGHEST_PRIORITY) ** self.exponent

"""How one batch is divided among replay shards so that K of them are drawn from as if they were one table.

The draws of a batch go to the shards by their share of the whole priority mass. What a batch costs the rate limiters is divided
by another rule, which keeps the shards level: were each to pay for what it is drawn, the one with the most mass would be given
the most inserts, and by them still more mass.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def draws_by_mass(masses: Sequence[float], draws: int, offset: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """How many of ``draws`` each shard makes, int64 [K], and its share of the mass, float64 [K].

    Systematic sampling: with ``offset`` uniform in [0, 1), each shard's expected number is exactly ``draws * share`` and its
    number differs from that by less than one, as in one table whose draws are stratified. Raises ValueError without mass.
    """
    mass = np.asarray(masses, np.float64)
    below = np.cumsum(mass)
    if not (mass >= 0.0).all() or not 0.0 < below[-1] < np.inf:
        raise ValueError(f"priority masses {list(masses)}: each must be 0 or more, and one of them more than 0")
    edges = np.zeros(len(mass) + 1, np.int64)
    edges[1:] = np.minimum(np.floor(below / below[-1] * draws + offset), draws)  # just below 1, an offset may round up
    return edges[1:] - edges[:-1], mass / below[-1]


def charges_by_error(errors: Sequence[float], amount: int) -> NDArray[np.int64]:
    """How many samples of ``amount`` each shard's limiter counts, int64 [K]: as many as bring the errors down to one level.

    ``errors``: by how many samples each shard's inserts are ahead of its ratio. Those furthest ahead pay first, so that all stay
    level and the whole waits as one limiter would: a shard that few inserts reach pays little and holds nobody up.
    """
    error = np.array(errors, np.float64)
    if amount == 0:
        return np.zeros(len(error), np.int64)
    error -= error.max()  # only differences matter, and small numbers are exact
    highest = np.sort(error)[::-1]
    # The level at which the n highest alone would pay everything; right is the largest n of which all lie above it.
    levels = (np.cumsum(highest) - amount) / np.arange(1, len(error) + 1)
    level = levels[np.flatnonzero(highest > levels)[-1]]
    paid = np.cumsum(np.maximum(error - level, 0.0))
    # Rounding the running sum, not each part, keeps the whole exact.
    edges = np.zeros(len(error) + 1, np.int64)
    edges[1:] = np.rint(paid / paid[-1] * amount)
    return edges[1:] - edges[:-1]

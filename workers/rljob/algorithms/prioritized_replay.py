"""What prioritized replay asks of learning: new priorities, and weights that undo the bias of the draw (Schaul et al. 2016)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

PRIORITY_OFFSET = 1e-3  # keeps a transition that is predicted perfectly in the draw


def importance_weights(probability: NDArray[np.floating[Any]], exponent: float) -> NDArray[np.float32]:
    """``(N P)^-beta``, divided by the largest of the batch: float32 [B] in (0, 1].

    ``probability`` float64 [B] is each item's chance in one draw over everything stored, in whatever shard (Schaul et al. 2016,
    3.4; the maximum is over the batch, as in Ape-X and SEED, not over the buffer). The number N of stored items cancels in that
    division. ``exponent`` is beta; 0 gives ones.
    """
    weight = np.power(np.asarray(probability, np.float64), -exponent)
    relative: NDArray[np.float32] = (weight / weight.max()).astype(np.float32)
    return relative


def priorities(td_abs: Tensor) -> Tensor:
    """New priorities float32 [B] of a batch that has been learned from: ``|td| + 1e-3``, the rule the actors use too."""
    return td_abs + PRIORITY_OFFSET

"""What acting is given and gives, whatever the algorithm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Inference(NamedTuple):
    """One forward pass for N observations: ``outputs`` float32 [N, K], of which ``Algorithm.decide`` makes actions, and
    ``state`` float32 [N, 2, H], the memory afterwards (H is 0 for a network without one)."""

    outputs: Tensor
    state: Tensor


class RandomNumbers(Protocol):
    """What acting may draw from: these calls of ``numpy.random.Generator``, of which environments in groups have shares."""

    def random(self, size: int | tuple[int, ...], /) -> NDArray[np.float64]:
        """Uniform in [0, 1); the first extent of ``size`` is the number of environments."""
        ...

    def integers(self, low: int, high: int, size: int | tuple[int, ...], /) -> NDArray[np.int64]:
        """Uniform from ``low`` to ``high - 1``."""
        ...


class Game(Protocol):
    """One game that is being evaluated, as a policy sees it: its own random numbers, and room for a memory (None at first)."""

    random: np.random.Generator
    memory: Any

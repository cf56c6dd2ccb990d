"""What an acting policy says of the observations it was shown, whatever the algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """Actions int64 [N] with what experience has to say of them.

    ``taken`` float32 [N]: Q(s, a) where actions have values, log mu(a|s) where a policy was sampled. ``value`` float32 [N]: the
    value of the state, max_a Q(s, a) or V(s). Both NaN where unknown. ``version`` int64 [N], or one number for all: the weights
    that chose, 0 for none. ``state`` float32 [N, 2, H]: the memory *before* the observation was seen; None without a memory.
    """

    action: NDArray[np.int64]
    taken: NDArray[np.float32]
    value: NDArray[np.float32]
    version: NDArray[np.int64] | int = 0
    state: NDArray[np.float32] | None = None

    @classmethod
    def joined(cls, parts: Sequence[Decision]) -> Decision:
        """The decisions for groups of environments as one for all of them, in this order."""
        states = [part.state for part in parts if part.state is not None]
        return cls(
            np.concatenate([part.action for part in parts]),
            np.concatenate([part.taken for part in parts]),
            np.concatenate([part.value for part in parts]),
            np.concatenate([np.broadcast_to(part.version, part.action.shape) for part in parts]),
            np.concatenate(states) if states else None,
        )


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

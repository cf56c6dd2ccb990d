"""What an acting policy says of the observations it was shown, whatever the algorithm."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """Actions int64 [N], or [N, choices] where there are several, with what experience has to say of them.

    ``taken`` float32 [N]: Q(s, a) where actions have values, log mu(a|s) where a policy was sampled. ``value`` float32 [N]: the
    value of the state, max_a Q(s, a) or V(s). Both NaN where unknown. ``version`` int64 [N], or one number for all: the weights
    that chose, 0 for none. ``state`` float32 [N, 2, H]: the memory *before* the observation was seen; None without a memory.
    ``control`` float32 [N, controls]: the continuous numbers of the actions, None without any.
    """

    action: NDArray[np.int64]
    taken: NDArray[np.float32]
    value: NDArray[np.float32]
    version: NDArray[np.int64] | int = 0
    state: NDArray[np.float32] | None = None
    control: NDArray[np.float32] | None = None

    @classmethod
    def joined(cls, parts: "Sequence[Decision]") -> Self:
        """The decisions for groups of environments as one for all of them, in this order."""
        states = [part.state for part in parts if part.state is not None]
        controls = [part.control for part in parts if part.control is not None]
        return cls(
            np.concatenate([part.action for part in parts]),
            np.concatenate([part.taken for part in parts]),
            np.concatenate([part.value for part in parts]),
            np.concatenate([np.broadcast_to(part.version, part.action.shape[:1]) for part in parts]),
            np.concatenate(states) if states else None,
            np.concatenate(controls) if controls else None,
        )

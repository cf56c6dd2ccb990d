"""n-step returns over one stream, vectorised over its steps: the only Python loop is over n."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def n_step_windows(reward: Array, closes: Array, n_step: int, gamma: float) -> tuple[Array, Array]:
    """Sum the discounted rewards of the window that starts at every step.

    The window of step i ends at the first step that ``closes`` it (an end of an episode or of a life), after
    ``n_step`` steps, or at the last step given, whichever comes first:
    ``R[i] = sum over k < m of gamma^k * reward[i + k]`` (Mnih et al. 2016, "forward view", Sutton and Barto ch. 7).

    ``reward`` f4[K] and ``closes`` b1[K] in stream order. Returns ``(R f8[K], m i8[K])`` with m >= 1 the steps from
    step i to its bootstrap state. Whether a window cut by the end of the input is complete is the caller's question.
    """
    steps = len(reward)
    reward = reward.astype(np.float64)  # so that no partial sum is rounded to float32
    total = np.zeros(steps, np.float64)
    length = np.zeros(steps, np.int64)
    open_ = np.ones(steps, bool)
    weight = 1.0
    for offset in range(min(n_step, steps)):
        here = open_[: steps - offset]
        total[: steps - offset] += np.where(here, weight * reward[offset:], 0.0)
        length[: steps - offset] += here
        here &= ~closes[offset:]
        weight *= gamma
    return total, length

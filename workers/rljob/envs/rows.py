"""Vector environments whose single rows can be reset at once, and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

# (env, rows to reset bool[N], observation [N, ...] after the step) -> observation [N, ...] with those rows begun anew
RowReset = Callable[[VectorEnv[Any, Any, Any], NDArray[np.bool_], Any], Any]


def row_reset(env: VectorEnv[Any, Any, Any]) -> RowReset | None:
    """How to reset single rows of ``env``, or None if nobody knows."""
    if env.metadata.get("autoreset_mode") == AutoresetMode.DISABLED:
        return _by_mask
    if type(env.unwrapped) is CartPoleVectorEnv:
        return _cart_pole
    return None


def _by_mask(env: VectorEnv[Any, Any, Any], ended: NDArray[np.bool_], observation: Any) -> Any:
    fresh, _ = env.reset(options={"reset_mask": ended})
    rows = np.array(observation, copy=True)
    rows[ended] = np.asarray(fresh)[ended]
    return rows


def _cart_pole(env: VectorEnv[Any, Any, Any], ended: NDArray[np.bool_], observation: Any) -> Any:
    """Gymnasium's CartPole resets at the next step and drops that row's action. Its state is public, so the same reset
    (uniform in [low, high] from its own generator) is done one step earlier, and its note to do it later is erased."""
    cart_pole = env.unwrapped
    assert isinstance(cart_pole, CartPoleVectorEnv)
    state: Any = cart_pole.state
    state[:, ended] = cart_pole.np_random.uniform(cart_pole.low, cart_pole.high, size=(4, int(ended.sum())))
    cart_pole.steps[ended] = 0
    cart_pole.prev_done[:] = False
    rows = np.array(observation, copy=True)
    rows[ended] = state.T[ended]
    return rows

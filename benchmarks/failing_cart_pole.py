"""``benchmarks.failing_cart_pole:make``: CartPole that raises and stalls at random, as a user's environment does on a bad day."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np

STALL_SECONDS = (2.0, 5.0)


class FailingCartPole(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Each step raises with probability ``crash`` and sleeps for 2 to 5 seconds with probability ``stall``.

    A life draws from the operating system: a crash that came back with the same seed would be another kind of fault.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], crash: float, stall: float) -> None:
        super().__init__(env)
        self._crash, self._stall = crash, stall
        self._random = np.random.default_rng()
        self._broken = False

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if self._random.random() < self._stall:
            time.sleep(self._random.uniform(*STALL_SECONDS))
        self._broken = self._broken or self._random.random() < self._crash
        if self._broken:  # for ever: who steps it again instead of making it anew has not mended it
            raise RuntimeError("the simulator has lost its licence")
        return self.env.step(action)


def make(crash: float = 1e-4, stall: float = 1e-4, render_mode: str | None = None) -> FailingCartPole:
    """The environment; ``render_mode`` as for CartPole."""
    return FailingCartPole(gymnasium.make("CartPole-v1", render_mode=render_mode), crash, stall)

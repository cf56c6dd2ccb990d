"""Games for the controller's tests, named as ``tests.support.slow_game:make``, ``:noisy``, ``:throttled`` and ``:broken``."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

JOB = Path(__file__).with_name("slow_game.yaml")
DELAY_FILE = "TEST_GAME_DELAY_FILE"  # a role is given no variable of its shell that begins with RLJOB_
"""Names the file that holds how many seconds a step of `throttled` takes."""


class SlowGame(gymnasium.Env[Any, Any]):
    """Every step takes ``step_seconds`` without costing a processor, so that several actors fit on one core."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, step_seconds: float) -> None:
        self._step_seconds = step_seconds
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(self._seconds())
        self._steps += 1
        return self._observation(), 1.0, self._steps >= 100, False, {}

    def _seconds(self) -> float:
        return self._step_seconds

    def _observation(self) -> Any:
        return np.full(4, np.sin(self._steps), np.float32)


class NoisyGame(SlowGame):
    """Shows ``numbers`` of noise, which no compression makes smaller, so that a link to the actor can be what limits it."""

    def __init__(self, step_seconds: float, numbers: int) -> None:
        super().__init__(step_seconds)
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (numbers,), np.float32)

    def _observation(self) -> Any:
        return self.np_random.uniform(-1.0, 1.0, self.observation_space.shape).astype(np.float32)


class BrokenGame(SlowGame):
    """Plays for longer than controller and learner try it before the start, and not for a whole game: every actor dies."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._steps < 90:
            return super().step(action)
        print("the plant caught fire", file=sys.stderr, flush=True)
        os._exit(3)


class ThrottledGame(SlowGame):
    """As slow as a file says at the moment."""

    def __init__(self) -> None:
        super().__init__(0.0)
        from sitecustomize import delay_seconds  # of tests/support/slowed

        self._read: Callable[[Path], float] = delay_seconds
        self._path = Path(os.environ[DELAY_FILE])
        self._next_read = 0.0

    def _seconds(self) -> float:
        if time.monotonic() >= self._next_read:
            self._next_read = time.monotonic() + 0.5
            self._step_seconds = self._read(self._path)
        return self._step_seconds


def make(step_seconds: float = 0.02) -> SlowGame:
    return SlowGame(step_seconds)


def noisy(step_seconds: float = 0.002, numbers: int = 256) -> NoisyGame:
    return NoisyGame(step_seconds, numbers)


def throttled() -> ThrottledGame:
    return ThrottledGame()


def broken() -> BrokenGame:
    return BrokenGame(0.0)

"""``benchmarks.sleeping_simulator:make``: a simulator that is slow and uneven, and costs no processor, since it only sleeps."""

from __future__ import annotations

import fcntl
import math
import time
from pathlib import Path
from typing import IO, Any

import gymnasium
import numpy as np


class SleepingSimulator(gymnasium.Env[Any, Any]):
    """Each step sleeps, log-uniformly, for ``step_seconds``, and stops with probability ``stop`` for ``stop_seconds``.

    Times are drawn from the operating system, so that no two copies are slow in the same steps. An episode has
    ``episode_steps``. Where copies are given the same ``slow_one``, a path, the one that has locked that file sleeps for
    ``reset_seconds`` in each reset.
    """

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(
        self,
        step_seconds: tuple[float, float],
        stop: float,
        stop_seconds: tuple[float, float],
        episode_steps: int,
        slow_one: str | None,
        reset_seconds: float,
    ) -> None:
        low, high = step_seconds
        self._logarithms = math.log(low), math.log(high)
        self._stop, self._stop_seconds = stop, stop_seconds
        self._episode_steps, self._reset_seconds = episode_steps, reset_seconds
        self._random = np.random.default_rng()
        self._steps = 0
        self._lock = locked(Path(slow_one)) if slow_one else None
        self.mean_step_seconds = (high - low) / math.log(high / low) + stop * sum(stop_seconds) / 2

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        if self._lock is not None:
            time.sleep(self._reset_seconds)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(math.exp(self._random.uniform(*self._logarithms)))
        if self._random.random() < self._stop:
            time.sleep(self._random.uniform(*self._stop_seconds))
        self._steps += 1
        return self._observation(), float(action), self._steps >= self._episode_steps, False, {}

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def _observation(self) -> Any:
        return np.full(4, np.sin(self._steps), np.float32)


def locked(path: Path) -> IO[str] | None:
    """The file with its lock, or None where another copy has it."""
    file = path.open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def make(
    step_seconds: tuple[float, float] = (0.01, 0.5),
    stop: float = 0.005,
    stop_seconds: tuple[float, float] = (2.0, 5.0),
    episode_steps: int = 100,
    slow_one: str | None = None,
    reset_seconds: float = 0.0,
) -> SleepingSimulator:
    return SleepingSimulator(step_seconds, stop, stop_seconds, episode_steps, slow_one, reset_seconds)

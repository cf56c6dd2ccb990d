"""A simulator whose arrays are of no framework that is known: they speak DLPack, and are written anew in every step."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from tests.support.toys import Countdown


class Foreign:
    """An array of which one can have what DLPack gives, and its words for an error message."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype

    def __dlpack__(self, **asked: Any) -> Any:
        return self.array.__dlpack__(**asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()  # type: ignore[no-any-return]


class Clocks(VectorEnv[Any, Any, Any]):
    """Observes (episode, step) float32; terminates at step ``length`` after action 1, is truncated at ``limit``, pays 2.5 for
    action 1. ``bad``: what is wrong with it, from its fourth step on."""

    def __init__(self, num_envs: int, length: int, limit: int, bad: str) -> None:
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP if bad == "mode" else AutoresetMode.SAME_STEP}
        self.num_envs = num_envs
        self.single_observation_space = gymnasium.spaces.Box(-1e6, 1e6, (2,), np.float32)
        self.single_action_space = gymnasium.spaces.Discrete(3)
        self.seen = np.zeros((num_envs, 2), np.float32)
        self.final = np.zeros_like(self.seen)
        self.reward = np.zeros(num_envs, np.float64)
        self.terminated = np.zeros(num_envs, np.bool_)
        self.truncated = np.zeros(num_envs, np.uint8)
        self._length, self._limit, self._bad = length, limit, bad
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.seen[:] = 0 if seed is None else (seed, 0)
        return Foreign(self.seen), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        actions = np.from_dlpack(actions)
        self._steps += 1
        self.seen[:, 1] += 1
        self.reward[:] = np.where(actions == 1, 2.5, -0.5)
        self.terminated[:] = (self.seen[:, 1] >= self._length) & (actions == 1)
        self.truncated[:] = self.seen[:, 1] >= self._limit
        self.final[:] = self.seen
        ended = self.terminated | (self.truncated > 0)
        self.seen[ended] += (1, 0)
        self.seen[ended, 1] = 0
        if self._bad == "late" and self._steps > 3:
            raise RuntimeError("the plant caught fire")
        if self._bad == "nan" and self._steps > 3:
            self.reward[0] = np.nan
        if self._bad == "seen" and self._steps > 3:
            self.seen[1, 1] = np.inf
        if self._bad == "last" and self._steps > 3:
            self.final[1, 1] = np.nan
        observation = self.seen.astype(np.uint8) if self._bad == "bytes" else self.seen
        reward = self.reward[:, None] if self._bad == "shape" else self.reward
        info = {} if self._bad == "final" else {"final_obs": Foreign(self.final)}
        flags = self.terminated.tolist() if self._bad == "list" else Foreign(self.terminated)
        return Foreign(observation), Foreign(reward), flags, Foreign(self.truncated), info


def clocks(
    num_envs: int | None = None, device: str = "cpu", length: int = 5, limit: int = 7, bad: str = ""
) -> gymnasium.Env[Any, Any] | Clocks:
    """On the CPU, whatever ``device`` says; a plain game of the same shape without ``num_envs``."""
    return Countdown(length, limit) if num_envs is None else Clocks(num_envs, length, limit, bad)

"""Environments that tests name as ``module:factory``."""

import os
import signal
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorWrapper


class Countdown(gymnasium.Env[Any, Any]):
    """Observes (episode, step); terminates at step ``length`` after action 1, is truncated at ``limit``; odd rewards."""

    observation_space = gymnasium.spaces.Box(-1e6, 1e6, (2,), np.float64)

    def __init__(self, length: int = 5, limit: int = 7, fail_at: int = -1, kill_at: int = -1, bad: str = "") -> None:
        self.action_space = gymnasium.spaces.Discrete(3)
        if bad == "continuous":
            self.action_space = gymnasium.spaces.Box(-1, 1, (1,))  # type: ignore[assignment]
        self._length, self._limit, self._fail_at, self._kill_at = length, limit, fail_at, kill_at
        self._episode = -1
        self._total = 0
        self._row = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._row, self._episode = seed, -1
        self._episode, self._step = self._episode + 1, 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        self._total += 1
        if self._total == self._fail_at and self._row % 10 == 1:
            raise RuntimeError("the plant caught fire")
        if self._total == self._kill_at and self._row % 10 == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        terminated = bool(self._step >= self._length and action == 1)
        return self._observation(), 2.5 if action else -0.5, terminated, self._step >= self._limit, {}

    def _observation(self) -> Any:
        return np.array([1000 * self._row + self._episode, self._step], np.float64)


def countdown(**kwargs: Any) -> Countdown:
    return Countdown(**kwargs)


def broken() -> Countdown:
    raise FileNotFoundError("plant.xml is missing")


def not_an_environment() -> str:
    return "hello"


def vector(num_envs: int = 0, mode: str = "SameStep") -> Any:
    """One plain environment without ``num_envs``; with it a vector in any autoreset mode."""
    if not num_envs:
        return Countdown()
    return SyncVectorEnv([Countdown] * num_envs, autoreset_mode=AutoresetMode(mode))


def vector_only(num_envs: int) -> Any:
    return vector(num_envs)


class LosesRewards(VectorWrapper):
    """A vector whose row 1 gives no number as the reward of its second step."""

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observation, reward, *others = self.env.step(actions)
        self._steps = getattr(self, "_steps", 0) + 1
        return observation, np.where((np.arange(len(reward)) == 1) & (self._steps == 2), np.nan, reward), *others


def vector_that_loses_rewards(num_envs: int) -> Any:
    return LosesRewards(vector(num_envs))


class Pictures(Countdown):
    """As Countdown, with 18 x 16 pictures whose pixels are the step."""

    observation_space = gymnasium.spaces.Box(0, 255, (18, 16), np.uint8)

    def _observation(self) -> Any:
        return np.full((18, 16), (10 * self._episode + self._step + 1) % 251, np.uint8)


class Colours(Countdown):
    """As Countdown, with pictures in three colours, 64 x 64 unless told otherwise."""

    def __init__(self, height: int = 64, width: int = 64, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.observation_space = gymnasium.spaces.Box(0, 255, (height, width, 3), np.uint8)

    def _observation(self) -> Any:
        return np.full(self.observation_space.shape or (), 10 * self._step, np.uint8)


def shifted_cartpole() -> gymnasium.Env[Any, Any]:
    """CartPole whose numbers are a thousand times as large, and far from zero."""
    env = gymnasium.make("CartPole-v1")
    box = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    return gymnasium.wrappers.TransformObservation(env, lambda seen: np.float32(1e3) * seen + np.float32(5e3), box)

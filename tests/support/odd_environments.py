"""Environments as people have written them, each odd in one way; tests name them as ``module:factory``."""

import multiprocessing
import random
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorWrapper


class Plain(gymnasium.Env[Any, Any]):
    """Observes (game, step, 0); games of ``limit`` steps are cut off."""

    observation_space = gymnasium.spaces.Box(-1e9, 1e9, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, limit: int = 4) -> None:
        self.limit, self.game, self.time = limit, -1, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.game, self.time = self.game + 1, 0
        return self.seen(), self.info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return self.seen(), 1.0, False, self.time >= self.limit, self.info()

    def seen(self) -> Any:
        return np.array([self.game, self.time, 0], np.float32)

    def info(self) -> dict[str, Any]:
        return {}


class OneBuffer(Plain):
    """Writes every observation into one array, that of all copies in a process."""

    buffer = np.zeros(3, np.float32)

    def seen(self) -> Any:
        self.buffer[:] = super().seen()
        return self.buffer


class OnePicture(Plain):
    """As ``OneBuffer``, with pictures whose pixels are the step."""

    observation_space = gymnasium.spaces.Box(0, 255, (16, 17), np.uint8)
    buffer = np.zeros((16, 17), np.uint8)

    def seen(self) -> Any:
        self.buffer[:] = self.time
        return self.buffer


class OddInfos(Plain):
    """Infos of another type in each copy and step, and with what can't be pickled."""

    def info(self) -> dict[str, Any]:
        of_types = ["a", 3, None, np.zeros(2), {"x": 1}, threading.Lock()]
        return {"kind": of_types[(id(self) // 64 + self.time) % len(of_types)], "lock": threading.Lock()}


class CantClose(Plain):
    """Fails in its second step, and when it is closed."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.time:
            raise RuntimeError("the plant caught fire")
        return super().step(action)

    def close(self) -> None:
        raise OSError("the plant can't be left")


class NotANumber(Plain):
    """Its last observation of a game, which is cut off, has what is no number in it."""

    def seen(self) -> Any:
        return np.where(np.arange(3) == 1, np.nan, super().seen()) if self.time == self.limit else super().seen()


class Gives(Plain):
    """Gives this reward, and this number within its observation, in the last step of a game, which is cut off."""

    def __init__(self, observation: str = "0", reward: str = "1") -> None:
        super().__init__()
        self.third, self.reward = float(observation), float(reward)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = super().step(action)
        observation[2] = self.third if truncated else 0.0
        return observation, self.reward if truncated else 1.0, terminated, truncated, info


class Drawing(Plain):
    """Draws from NumPy's and Python's own generators while it is made, at a reset and in a step. ``write_to``: a folder for what
    a copy was made and seeded with."""

    def __init__(self, write_to: str = "") -> None:
        super().__init__()
        self.drawn = np.random.random()
        self.write_to = write_to

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self.write_to and seed is not None:
            words = f"{seed} {self.drawn} {random.random()}"
            (Path(self.write_to) / f"{seed}.drawn").write_text(words)
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, *others = super().step(action)
        return (observation, np.random.random(), *others)  # type: ignore[return-value]


class Scenarios(Plain):
    """Its seed is the number of a scenario."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None and seed >= 10:
            raise KeyError(seed)
        return super().reset(seed=seed)


def here_alone() -> Plain:
    """Can be made in the first process only."""
    if multiprocessing.parent_process() is not None:
        raise OSError("one copy a machine")
    return Plain()


class OfOldGymnasium(VectorWrapper):
    """Has its last observations where Gymnasium had them before 1.0."""

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        *others, info = self.env.step(actions)
        if "final_obs" in info:
            info = {"final_observation": info["final_obs"], "final_info": np.array([{}] * self.num_envs)}
        return (*others, info)  # type: ignore[return-value]


class VectorWithoutNumbers(VectorWrapper):
    """Row 1 observes what is no number."""

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observation, *others = self.env.step(actions)
        observation[1, 2] = np.inf
        return (observation, *others)  # type: ignore[return-value]


def vector(num_envs: int, kind: str) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    plain = SyncVectorEnv([Plain] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
    return {"old": OfOldGymnasium, "not numbers": VectorWithoutNumbers}[kind](plain)

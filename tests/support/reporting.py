"""Environments that report numbers of their episodes in ``info``; tests name them as ``module:factory``."""

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tests.support.odd_environments import Plain


class Reporting(Plain):
    """Tells with each step how far it is, and at the end of every second game that it succeeded."""

    def info(self) -> dict[str, Any]:
        return {"is_success": self.game % 2 == 1, "distance": np.float32(self.time) / 2, "picture": np.zeros((2, 2))}


class Now(Plain):
    """Succeeds in three of four games, whatever is done, and tells of a number that only its first game has."""

    def info(self) -> dict[str, Any]:
        return {"is_success": self.game % 4 != 3, "distance": 0.25} | ({"first": 1} if not self.game else {})


class Odd(Plain):
    """Reports numbers of all kinds, and what is none."""

    def info(self) -> dict[str, Any]:
        return {
            "true": np.bool_(True), "zero-d": np.array(3, np.int8), "half": np.float16(0.5), "low": -2, "lives": 3,
            "no number": float("nan"), "no end": np.float32("inf"), "text": "1", "object": self, "nothing": None,
            "one": np.ones(1), "tensor": torch.tensor(0.25), "array": np.ones(2),
            "tensors": torch.ones(2), "complex": 1j, "huge": 10**400, "too large": 1e300, "dict": {"a": 1}, "list": [1.0],
            "two\nlines": 1, "é": 1, "": 1, "_mask": 1, "x" * 65: 1, 7: 1, "TimeLimit.truncated": True,
        }  # fmt: skip


class Many(Plain):
    """Reports more than can be shown."""

    def info(self) -> dict[str, Any]:
        return {f"n{index}": index for index in range(100_000)}


def vector(num_envs: int = 1, mode: str = "SAME_STEP") -> Any:
    """A vector of a user's own."""
    if num_envs == 1:
        return Reporting()
    return SyncVectorEnv([Reporting] * num_envs, autoreset_mode=AutoresetMode[mode])


class CartPole(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole that says whether it is upright."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        *rest, info = self.env.step(action)
        return *rest, info | {"upright": not rest[2]}  # type: ignore[return-value]

"""An environment of any observation and action space: samples of the one, and it asserts that it gets actions of the other."""

import functools
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

LENGTH = 7

OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "vector": spaces.Box(-1, 1, (3,), np.float32),
    "scalar": spaces.Box(-1, 1, (), np.float64),
    "table": spaces.Box(-5, 5, (2, 3), np.float32),
    "bools": spaces.Box(0, 1, (4,), np.bool_),
    "whole_numbers": spaces.Box(-3, 9, (2,), np.int64),
    "symbols": spaces.Box(0, 255, (7, 7, 3), np.uint8),
    "picture": spaces.Box(0, 255, (16, 18, 3), np.uint8),
    "float_picture": spaces.Box(0, 1, (16, 16), np.float32),
    "discrete": spaces.Discrete(5),
    "from_two": spaces.Discrete(4, start=2),
    "several": spaces.MultiDiscrete([3, 5]),
    "grid": spaces.MultiDiscrete([[2, 3], [4, 2]]),
    "bits": spaces.MultiBinary(3),
    "tuple": spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 1, (2,), np.float32))),
    "dict": spaces.Dict({"far": spaces.Box(0, 1, (2,), np.float32), "near": spaces.Discrete(2)}),
    "nested": spaces.Dict(
        {
            "cameras": spaces.Tuple(
                (spaces.Box(0, 255, (16, 16, 3), np.uint8), spaces.Box(0, 1, (20, 17), np.float32))
            ),
            "body": spaces.Dict(
                {
                    "joints": spaces.Box(-1, 1, (4,), np.float64),
                    "touch": spaces.MultiBinary(2),
                    "mode": spaces.Discrete(3),
                }
            ),
            "cards": spaces.MultiDiscrete([4, 4]),
            "hidden": spaces.Box(-1, 1, (2,), np.float32),
        }
    ),
}

ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "from_one": spaces.Discrete(3, start=1),
    "several": spaces.MultiDiscrete([3, 2]),
    "bits": spaces.MultiBinary(3),
    "tuple": spaces.Tuple((spaces.Discrete(2), spaces.MultiDiscrete([3, 4]))),
    "dict": spaces.Dict({"turn": spaces.Discrete(3), "tools": spaces.Dict({"use": spaces.MultiBinary(2)})}),
}
CONTINUOUS: dict[str, spaces.Space[Any]] = {
    "number": spaces.Box(-2, 2, (1,), np.float32),
    "scalar": spaces.Box(0, 0.1, (), np.float32),
    "table": spaces.Box(np.array([[-1, 0, 3], [-5, 1e-3, 7]]), np.array([[1, 2, 4], [5, 2e-3, 7]]), dtype=np.float64),
    "halves": spaces.Box(-60_000, 60_000, (2,), np.float16),
    "with_choices": spaces.Tuple((spaces.Discrete(3, start=1), spaces.Box(-1, 1, (2,), np.float32))),
    "mixed": spaces.Dict(
        {
            "grip": spaces.MultiBinary(2),
            "arm": spaces.Tuple((spaces.Box(-3, 1, (2, 1), np.float64), spaces.Discrete(2))),
        }
    ),
}
"""Spaces of two finite bounds each, so that they can be squashed to."""
OPEN: dict[str, spaces.Space[Any]] = {
    "unbounded": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "one_sided": spaces.Box(np.array([0, -np.inf, -1]), np.array([np.inf, 0.5, 1]), dtype=np.float32),
}
ACTIONS |= CONTINUOUS | OPEN


class EverySpace(gymnasium.Env[Any, Any]):
    """``masked``: infos say that the first value of each choice is not allowed in even steps, and the environment asserts that it
    is not taken. Episodes end after ``LENGTH`` steps, in turn by themselves and by time."""

    def __init__(self, observation: str = "vector", action: str = "discrete", masked: bool = False) -> None:
        self.observation_space = OBSERVATIONS[observation]
        self.action_space = ACTIONS[action]
        self._masked = masked
        self._episode = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._episode += 1
        self._step = 0
        return self.observation_space.sample(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        assert isinstance(action, int) or not isinstance(self.action_space, spaces.Discrete), type(action)
        if self._masked and self._step % 2 == 0:
            assert forbidden_nowhere(action, self.action_space), f"{action!r} is not allowed"
        self._step += 1
        over = self._step == LENGTH
        by_time = self._episode % 2 == 1
        return self.observation_space.sample(), 1.0, over and not by_time, over and by_time, self._info()

    def _info(self) -> dict[str, Any]:
        if not self._masked:
            return {}
        return {"action_mask": _mask(self.action_space, first_allowed=self._step % 2 == 1)}


class _OfVector(EverySpace):
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return super().step(int(action) if isinstance(action, np.int64) else action)  # as Gymnasium's vectors give it


def vector(num_envs: int | None = None, **kwargs: Any) -> Any:
    """The same behind a vector class, with arrays of each leaf."""
    if num_envs is None:
        return EverySpace(**kwargs)
    makers = [functools.partial(_OfVector, **kwargs) for _ in range(num_envs)]
    return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)


def forbidden_nowhere(action: Any, space: spaces.Space[Any]) -> bool:
    """Whether no choice of ``action`` is the first one."""
    if isinstance(space, spaces.Tuple):
        return all(forbidden_nowhere(*pair) for pair in zip(action, space.spaces, strict=True))
    if isinstance(space, spaces.Dict):
        return all(forbidden_nowhere(action[key], one) for key, one in space.spaces.items())
    if isinstance(space, spaces.Box):
        return True
    return bool((np.asarray(action) != getattr(space, "start", 0)).all())


def _mask(space: spaces.Space[Any], *, first_allowed: bool) -> Any:
    """In the form of the space, as Gymnasium's own ``sample(mask=...)`` has it."""
    if isinstance(space, spaces.Tuple):
        return tuple(_mask(one, first_allowed=first_allowed) for one in space.spaces)
    if isinstance(space, spaces.Dict):
        return {key: _mask(one, first_allowed=first_allowed) for key, one in space.spaces.items()}
    if isinstance(space, spaces.Box):
        return ()
    if isinstance(space, spaces.Discrete):
        sizes = [int(space.n)]
    elif isinstance(space, spaces.MultiDiscrete):
        sizes = space.nvec.ravel().tolist()
    else:
        sizes = [2] * int(np.prod(space.shape or ()))
    rows = [np.array([first_allowed] + [True] * (size - 1), np.int8) for size in sizes]
    return rows[0] if isinstance(space, spaces.Discrete) else tuple(rows)

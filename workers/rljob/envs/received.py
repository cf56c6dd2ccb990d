"""What an environment of somebody else's gives, taken over where it is given: copied, checked, and nothing that nobody reads."""

from __future__ import annotations

import logging
import math
from typing import Any

import gymnasium
import numpy as np

from rljob.envs.errors import EnvironmentProblem
from rljob.envs.seeds import seed_generators
from rljob.envs.spaces import FrameFormat
from rljob.loading import PLUGIN_FAILURES, short, told

log = logging.getLogger(__name__)


class Received(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Copy ``index`` of an environment; stands right around it, below every wrapper of ours.

    An observation is a copy in the type of ``frame``, for authors write into one buffer; infos stay behind, for they are of any
    type and nobody reads them. A seed is one for this process's generators, too, for authors draw from them. Whatever goes wrong,
    an observation of another shape or with what is no finite number included, is an EnvironmentProblem that says in which of the
    copies.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], frame: FrameFormat, environment_id: str, index: int) -> None:
        super().__init__(env)
        self._frame, self._id, self._index = frame, environment_id, index
        self._steps = 0
        space = env.observation_space
        assert isinstance(space, gymnasium.spaces.Box)
        if space.dtype != frame.dtype:
            low, high = (bound.astype(np.float32) for bound in (space.low, space.high))
            self.observation_space = gymnasium.spaces.Box(low, high, dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._steps = 0
        if seed is not None:
            seed_generators(seed)
        try:
            observation, _ = self.env.reset(seed=seed, options=options)
            return self._taken(observation), {}
        except PLUGIN_FAILURES as error:
            raise self._problem("reset", error) from error

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        try:
            observation, reward, terminated, truncated, _ = self.env.step(action)
            if not math.isfinite(reward):
                raise ValueError(f"expected a finite reward, got {reward}{self._when()}")
            return self._taken(observation), float(reward), bool(terminated), bool(truncated), {}
        except PLUGIN_FAILURES as error:
            raise self._problem("step", error) from error

    def close(self) -> None:
        close(self.env, self._id)

    def _taken(self, given: Any) -> Any:
        if np.shape(given) != self._frame.shape:
            raise ValueError(
                f"expected an observation of the shape {list(self._frame.shape)}, as observation_space says, got one of "
                f"{list(np.shape(given))}"
            )
        observation = np.array(given, self._frame.dtype)
        if self._frame.dtype == "float32" and not np.isfinite(observation).all():
            raise ValueError(f"expected an observation of finite numbers, got {first_odd(observation)}{self._when()}")
        return observation

    def _when(self) -> str:
        return f" in step {self._steps} of the episode" if self._steps else ""

    def _problem(self, where: str, error: BaseException) -> EnvironmentProblem:
        return EnvironmentProblem(
            f"environment {self._index} of {short(self._id)!r} failed in {where}(): {told(error)}",
            environment=self._index,
        )


def first_odd(numbers: Any) -> str:
    """The first of ``numbers`` that is not finite, and where it is: ``nan at [0, 3]``."""
    at = np.argwhere(~np.isfinite(numbers))[0]
    return f"{numbers[tuple(at)]} at {at.tolist()}"


def expect_finite(what: str, numbers: Any) -> None:
    """Raise ValueError with the first of ``numbers`` that is none. ``what``: what they are, and what each index of them says."""
    if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
        raise ValueError(f"expected finite {what}, got {first_odd(numbers)}")


def close(env: Any, environment_id: str) -> None:
    """Close what a user has written; a failure in it is a line of the log and hides nothing that happened before."""
    try:
        env.close()
    except PLUGIN_FAILURES as error:
        log.warning("environment %r failed in close(): %s", short(environment_id), told(error))

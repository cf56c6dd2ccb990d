"""What an environment of a user's gives, taken over where it is given: copied, checked, and nothing that is not read."""

from __future__ import annotations

import logging
import math
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rljob.envs.base import EnvironmentProblem
from rljob.envs.seeds import seed_generators
from rljob.envs.spaces import FrameFormat
from rljob.loading import PLUGIN_FAILURES, short, shown, told

log = logging.getLogger(__name__)


class Received(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Copy ``index`` of an environment; stands right around it, below every wrapper of ours.

    An observation is a copy in the type of ``frame``, for authors write into one buffer; infos stay behind, for they are of any
    type and are not read. A seed is one for this process's generators, too, for authors draw from them. Whatever goes wrong,
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
            return observed(observation, self._frame), {}
        except PLUGIN_FAILURES as error:
            raise self._problem("reset", error) from error

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        try:
            observation, reward, terminated, truncated, _ = self.env.step(action)
            return observed(observation, self._frame), rewarded(reward), bool(terminated), bool(truncated), {}
        except PLUGIN_FAILURES as error:
            raise self._problem("step", error) from error

    def close(self) -> None:
        close(self.env, self._id)

    def _problem(self, where: str, error: BaseException) -> EnvironmentProblem:
        when = f", in step {self._steps} of the episode" if self._steps else ""
        return EnvironmentProblem(
            f"environment {self._index} of {short(self._id)!r} failed in {where}(): {told(error)}{when}",
            environment=self._index,
        )


def observed(given: Any, frame: FrameFormat) -> NDArray[Any]:
    """``given`` as what ``frame`` says, a copy. Raises ValueError with what was expected and what came."""
    try:
        seen = np.asarray(given)
    except ValueError:  # lists of different lengths
        seen = np.asarray(None)
    of_bytes = frame.dtype == "uint8"
    if seen.shape != frame.shape or not (seen.dtype == np.uint8 if of_bytes else seen.dtype.kind in "biuf"):
        raise ValueError(
            f"expected an observation {frame.dtype} {list(frame.shape)}, as observation_space says, got {shown(given)}"
        )
    observation = np.array(seen, frame.dtype)
    if not of_bytes and not np.isfinite(observation).all():
        raise ValueError(f"expected an observation of finite numbers, got {first_odd(observation)}")
    return observation


def rewarded(given: Any) -> float:
    """``given`` as a reward. Raises ValueError unless it is one finite number."""
    number = np.asarray(given)
    if number.shape != () or number.dtype.kind not in "biuf" or not math.isfinite(number):
        raise ValueError(f"reward: expected a finite number, got {shown(given)}")
    return float(number)


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

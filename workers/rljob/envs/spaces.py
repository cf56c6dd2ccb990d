"""What observation and action spaces the data plane can carry, and the form in which it carries them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rljob.envs.base import EnvironmentProblem
from rljob.loading import short


@dataclass(frozen=True, slots=True)
class FrameFormat:
    """shape F* and dtype ("uint8" or "float32") of one frame."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def is_image(self) -> bool:
        """Two or three dimensions of bytes: what is worth stacking to see motion."""
        return self.dtype == "uint8" and len(self.shape) >= 2


def frame_format(environment_id: str, space: gymnasium.Space[Any]) -> FrameFormat:
    """Bytes stay bytes, every other number becomes float32. Raises EnvironmentProblem for a space that is not a Box."""
    if not isinstance(space, gymnasium.spaces.Box):
        raise EnvironmentProblem(
            f"environment {short(environment_id)!r} has observations of {type(space).__name__}; only Box is supported: wrap "
            "it with gymnasium.wrappers.FlattenObservation in a module:factory of your own"
        )
    if not space.shape:
        raise EnvironmentProblem(f"environment {short(environment_id)!r} has scalar observations; reshape them to (1,)")
    return FrameFormat(tuple(space.shape), "uint8" if space.dtype == np.uint8 else "float32")


def num_actions(environment_id: str, space: gymnasium.Space[Any]) -> int:
    """Size of a Discrete space that starts at 0. Raises EnvironmentProblem for everything else."""
    if not isinstance(space, gymnasium.spaces.Discrete):
        raise EnvironmentProblem(
            f"environment {short(environment_id)!r} has actions of {type(space).__name__}; only Discrete is supported: wrap it "
            "in a module:factory of your own that offers a finite set of actions"
        )
    if int(space.start) != 0:
        raise EnvironmentProblem(
            f"environment {short(environment_id)!r} numbers its actions from {space.start}; they must start at 0"
        )
    return int(space.n)


def checked_subset(environment_id: str, actions: Sequence[int], num_actions: int) -> Sequence[int]:
    """``actions`` if they are distinct indices into an environment's own ``num_actions``, else EnvironmentProblem."""
    if outside := [a for a in actions if not 0 <= a < num_actions]:
        raise EnvironmentProblem(
            f"environment {short(environment_id)!r}: actions {outside} do not exist; it has {num_actions}, numbered from 0"
        )
    if len(set(actions)) != len(actions):
        raise EnvironmentProblem(
            f"environment {short(environment_id)!r}: actions {list(actions)} repeat themselves; name each once"
        )
    return actions


def checked_actions(actions: NDArray[Any], num_envs: int, num_actions: int) -> NDArray[Any]:
    """``actions`` if they are N integers in [0, num_actions), else ValueError.

    Not a courtesy: ALE's worker thread throws on a bad index, and the process then waits for ever.
    """
    if actions.shape != (num_envs,) or actions.dtype.kind not in "iu":
        raise ValueError(
            f"actions must be integers of shape ({num_envs},), got {actions.dtype} of shape {actions.shape}"
        )
    if actions.min() < 0 or actions.max() >= num_actions:
        raise ValueError(f"actions must lie in [0, {num_actions}), got {actions.min()} to {actions.max()}")
    return actions

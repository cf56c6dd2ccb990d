"""The vector environment that a user's own factory gives where it takes ``num_envs``."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import VectorEnv

from rljob.envs.errors import EnvironmentProblem
from rljob.envs.target import UserFactory
from rljob.loading import PLUGIN_FAILURES, short, told


def user_vector(target: UserFactory, num_envs: int) -> VectorEnv[Any, Any, Any]:
    """``num_envs`` environments of ``target``. Raises EnvironmentProblem when it fails or gives anything else."""
    try:
        vector = target.make(num_envs=num_envs, **target.kwargs)
    except PLUGIN_FAILURES as error:
        raise EnvironmentProblem(f"environment {short(target.id)!r}: the factory failed: {told(error)}") from error
    if not isinstance(vector, VectorEnv) or vector.num_envs != num_envs:
        raise EnvironmentProblem(
            f"environment {short(target.id)!r}: with num_envs={num_envs} the factory returned {type(vector).__name__}; it "
            f"must return a gymnasium.vector.VectorEnv of {num_envs}"
        )
    return vector

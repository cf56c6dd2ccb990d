"""Observations to compare a policy and its export on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rljob.envs import EnvironmentProblem
from rljob.errors import named
from rljob.loading import short
from rljob.policy.trained import Policy

COUNT = 64
_STEPS_APART = 4


class Samples(NamedTuple):
    """``observations`` [N, S, *F], ``memory`` float32 [N, 2, H], and where they are from, in words."""

    observations: NDArray[Any]
    memory: NDArray[np.float32]
    origin: str


def sample(policy: Policy) -> Samples:
    """Observations of games of the policy's environment, played at random; random numbers where it can't be made or played here.
    The same at every call."""
    random = np.random.default_rng(0)
    memory = random.normal(size=(COUNT, 2, policy.memory_units)).astype(np.float32)
    try:
        return Samples(_played(policy, random), memory, policy.environment_id)
    except EnvironmentProblem as problem:
        shape = (COUNT, *policy.observation_shape)
        drawn = random.integers(0, 256, shape) if policy.observation_dtype == "uint8" else random.normal(size=shape)
        return Samples(drawn.astype(policy.observation_dtype), memory, f"random numbers, as {problem}")


def _played(policy: Policy, random: np.random.Generator) -> NDArray[Any]:
    env = policy.environment()
    try:
        observation, _ = env.reset(seed=0)
        seen = []
        for step in range(COUNT * _STEPS_APART):
            if step % _STEPS_APART == 0:
                seen.append(np.array(observation))
            observation, _, terminated, truncated, _ = env.step(int(random.integers(policy.num_actions)))
            if terminated or truncated:
                observation, _ = env.reset()
        return np.stack(seen)
    except EnvironmentProblem:
        raise
    except Exception as error:
        raise EnvironmentProblem(f"environment {short(policy.environment_id)!r} failed: {named(error)}") from error
    finally:
        env.close()

"""The most that one game can bring, where that is known for certain."""

from __future__ import annotations

from typing import Any

import gymnasium

# Pong ends when one side has 21 points; each point of ours counts 1.
_BY_ROM = {"pong": 21.0}


def best_possible_return(environment_id: str, made: gymnasium.Env[Any, Any]) -> float | None:
    """An upper bound on the return of one game of ``environment_id``, which was ``made`` as the job says, or None where nobody
    vouches for one.

    Gymnasium's CartPole pays 1 a step up to its step limit; a sparser reward option pays less, never more.
    """
    spec = gymnasium.registry.get(environment_id)
    if spec is None:
        return None
    if spec.entry_point == "ale_py.env:AtariEnv":
        return _BY_ROM.get(str(spec.kwargs.get("game")))
    if (
        spec.entry_point == "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
        and made.spec
        and made.spec.max_episode_steps
    ):
        return float(made.spec.max_episode_steps)
    return None

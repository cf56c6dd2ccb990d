"""Algorithms by name. Learner and actor loops get one of these and know no algorithm by its name.

An algorithm is one file of pure functions; this registry says which functions they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from rljob.algorithms import apex_dqn


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What the loops need of an algorithm; the functions are documented where they are defined (``apex_dqn``)."""

    name: str
    build: Callable[..., Any]
    act: Callable[..., Any]
    choose: Callable[..., Any]
    q_values: Callable[..., Tensor]
    epsilon_ladder: Callable[..., float]
    loss: Callable[..., apex_dqn.Loss]
    priorities: Callable[[Tensor], Tensor]
    importance_weights: Callable[..., Any]


_ALGORITHMS = {
    "ApeXDQN": Algorithm(
        name="ApeXDQN",
        build=apex_dqn.build,
        act=apex_dqn.act,
        choose=apex_dqn.choose,
        q_values=apex_dqn.q_values,
        epsilon_ladder=apex_dqn.epsilon_ladder,
        loss=apex_dqn.loss,
        priorities=apex_dqn.priorities,
        importance_weights=apex_dqn.importance_weights,
    )
}


def algorithm(name: str) -> Algorithm:
    """The algorithm called ``name`` (``spec.algorithm.name``). Raises ValueError naming those that exist."""
    try:
        return _ALGORITHMS[name]
    except KeyError:
        raise ValueError(f"there is no algorithm {name!r}; there is {', '.join(sorted(_ALGORITHMS))}") from None


__all__ = ["Algorithm", "algorithm"]

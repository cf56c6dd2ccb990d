"""A trained network as the function that a scorer wants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from rljob.algorithms import Algorithm
from rljob.algorithms.decision import Game
from rljob.evaluation.score import JudgedPolicy


def judged_policy(algorithm: Algorithm, module: nn.Module, parameters: Any) -> JudgedPolicy:
    """How the algorithm plays when it is judged; follows later changes of ``module``'s weights."""

    def act(observation: NDArray[Any], games: Sequence[Game]) -> NDArray[np.int64]:
        actions: NDArray[np.int64] = algorithm.judged_action(module, observation, games, parameters)
        return actions

    return act

"""A trained network as the function that a scorer wants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import nn

from rljob.algorithms.base import AnyAlgorithm
from rljob.algorithms.decision import Game
from rljob.evaluation.score import JudgedPolicy

ROWS: Final = 16
"""Observations in every forward pass of a judged policy."""


class _Nobody:
    """Takes the place of a game in a row that nobody needs."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.memory: Any = None


def judged_policy(algorithm: AnyAlgorithm, module: nn.Module, parameters: Any) -> JudgedPolicy:
    """How the algorithm plays when it is judged; follows later changes of ``module``'s weights.

    The network sees ``ROWS`` observations in each pass, whatever the number of games. A matrix product rounds differently for
    different numbers of rows, and one other action makes another game; with the same number of rows each row has the same
    result wherever it stands and whatever the others hold (on one kind of processor, with one thread: tested).
    """
    nobody = [_Nobody() for _ in range(ROWS)]

    def act(observation: NDArray[Any], games: Sequence[Game]) -> NDArray[np.int64]:
        actions = np.empty(len(games), np.int64)
        for first in range(0, len(games), ROWS):
            some = list(games[first : first + ROWS])
            shown = np.zeros((ROWS, *observation.shape[1:]), observation.dtype)
            shown[: len(some)] = observation[first : first + ROWS]
            chosen = algorithm.evaluation_action(parameters, module, shown, [*some, *nobody[len(some) :]])
            actions[first : first + ROWS] = chosen[: len(some)]
        return actions

    return act

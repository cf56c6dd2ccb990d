"""A trained network as the function that a scorer wants."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from rljob.algorithms import Algorithm
from rljob.evaluation.score import GreedyPolicy


def greedy_policy(algorithm: Algorithm, module: nn.Module) -> GreedyPolicy:
    """The action of highest value in each observation [B, S, *F*]; follows later changes of ``module``'s weights."""

    def act(observation: NDArray[Any]) -> NDArray[np.int64]:
        with torch.inference_mode():
            best: NDArray[np.int64] = algorithm.q_values(module, observation).argmax(dim=1).cpu().numpy()
        return best

    return act

"""What acting is given and gives, whatever the algorithm."""

from typing import Any, NamedTuple, Protocol

import numpy as np
from torch import Tensor


class Inference(NamedTuple):
    """One forward pass for N observations: ``outputs`` float32 [N, K], of which ``Algorithm.decide`` makes actions, and
    ``state`` float32 [N, 2, H], the memory afterwards (H is 0 for a network without one)."""

    outputs: Tensor
    state: Tensor


class Game(Protocol):
    """One game that is being evaluated, as a policy sees it: its own random numbers, and room for a memory (None at first)."""

    random: np.random.Generator
    memory: Any

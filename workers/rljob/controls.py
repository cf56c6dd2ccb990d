"""Continuous numbers of actions, for N environments at once, in numpy: independent Gaussians, drawn and judged.

A network has two numbers for each of C: float32 [N, 2 * C], all means and then the logarithms of all deviations. What is drawn,
travels and is learned from has no bounds; the environment's edge (``rljob.envs.encoding``) brings it into those of its space. The
same for learners, in torch, is ``rljob.algorithms.distributions``.
"""

from dataclasses import dataclass
from math import log, pi
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from rljob.observation import Array

HALF_LOG_2PI: Final = 0.5 * log(2.0 * pi)


def normal(uniform: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard normal draws [N, C] of uniform ones [N, 2, C] in [0, 1), by Box and Muller: environments in groups have shares of
    uniform draws alone, and every draw takes two of them, whatever comes out."""
    found: NDArray[np.float64] = np.sqrt(-2.0 * np.log1p(-uniform[:, 0])) * np.cos(2.0 * pi * uniform[:, 1])
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Gaussians:
    """``mean`` and ``log_std``, float [N, C]."""

    mean: Array
    log_std: Array

    @classmethod
    def of(cls, numbers: Array) -> Self:
        """From a network's numbers [N, 2 * C]."""
        mean, log_std = np.split(numbers.astype(np.float64), 2, axis=1)
        return cls(mean, log_std)

    @classmethod
    def standard(cls, count: int, controls: int) -> Self:
        """What an actor without weights draws from, and where a network's policy begins."""
        nothing = np.zeros((count, controls))
        return cls(nothing, nothing)

    def sample(self, uniform: NDArray[np.float64], temperature: float = 1.0) -> NDArray[np.float32]:
        """Draws [N, C] of uniform ones [N, 2, C]; ``temperature`` multiplies the deviations, and 0 gives the means."""
        return (self.mean + temperature * np.exp(self.log_std) * normal(uniform)).astype(np.float32)

    def log_prob(self, control: Array) -> NDArray[np.float64]:
        """The logarithm [N] of the density at ``control`` [N, C], the sum over its numbers."""
        distance = (control - self.mean) * np.exp(-self.log_std)
        found: NDArray[np.float64] = -(0.5 * distance * distance + self.log_std + HALF_LOG_2PI).sum(axis=1)
        return found

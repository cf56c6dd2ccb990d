"""What can be chosen, and how, for N environments at once, in numpy: the best, a sample, or anything that is allowed.

An action is one choice, int64 [N], or several that are made independently, int64 [N, choices]. A network has a number for each
value of each choice, float32 [N, K], the first choice's first; those of values that are not allowed are ``FORBIDDEN`` already,
since the network sees the mask. Continuous numbers may stand beside the choices, or alone: what a network has for them stands
behind the others: independent Gaussians, float32 [N, 2 * C], all means and then the logarithms of all deviations. What is
drawn, travels and is learned from has no bounds; the environment's edge (``rljob.envs.encoding``) brings it into those of its
space. The same for learners, in torch, is ``rljob.algorithms.distributions``.
"""

from dataclasses import dataclass
from math import log, pi
from typing import Any, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from rljob.observation import Array

FORBIDDEN: Final = float(np.finfo(np.float32).min)
"""A network's number for what is not allowed. Finite, so that no product of it with 0 is NaN."""


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


class RandomNumbers(Protocol):
    """What acting may draw from: these calls of ``numpy.random.Generator``, of which environments in groups have shares."""

    def random(self, size: int | tuple[int, ...], /) -> NDArray[np.float64]:
        """Uniform in [0, 1); the first extent of ``size`` is the number of environments."""

    def integers(self, low: int, high: int, size: int | tuple[int, ...], /) -> NDArray[np.int64]:
        """Uniform from ``low`` to ``high - 1``."""


class GroupedDraws:
    """What each of ``groups`` groups of environments draws is its share of what all of them would draw at once.

    So a run in groups makes the same random choices as a run without. A step begins with group 0; the numbers that it
    draws are drawn for all groups, and the others take theirs in the order of their calls. A group that calls otherwise
    than group 0 did (weights arrived between the two) draws afresh. Offers the calls of ``numpy.random.Generator`` that
    acting uses; the first extent of ``size`` is the number of environments of one group.
    """

    def __init__(self, generator: np.random.Generator, groups: int) -> None:
        self._generator, self._groups = generator, groups
        self._drawn: list[tuple[tuple[Any, ...], NDArray[Any]]] = []
        self._group = self._next = 0

    def turn_of(self, group: int) -> None:
        """The draws from now on are for ``group``; 0 begins a new step."""
        if group == 0:
            self._drawn.clear()
        self._group, self._next = group, 0

    def random(self, size: int | tuple[int, ...]) -> NDArray[np.float64]:
        """As ``Generator.random``."""
        return self._share("random", (), size)

    def integers(self, low: int, high: int, size: int | tuple[int, ...]) -> NDArray[np.int64]:
        """As ``Generator.integers``."""
        return self._share("integers", (low, high), size)

    def _share(self, name: str, bounds: tuple[int, ...], size: int | tuple[int, ...]) -> NDArray[Any]:
        rows, *rest = (size,) if isinstance(size, int) else size
        call = (name, bounds, rows, *rest)
        place, self._next = self._next, self._next + 1
        if place >= len(self._drawn) or self._drawn[place][0] != call:
            self._drawn[place:] = [(call, getattr(self._generator, name)(*bounds, (rows * self._groups, *rest)))]
        return self._drawn[place][1][self._group * rows : (self._group + 1) * rows]


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """``sizes``: how many values each choice has. ``allowed`` bool [N, K], at least one of each choice; None: all are.
    ``controls``: how many continuous numbers an action has beside them."""

    sizes: tuple[int, ...]
    allowed: NDArray[np.bool_] | None = None
    controls: int = 0

    def action(self, chosen: NDArray[np.int64], control: NDArray[np.float32] | None) -> Any:
        """Choices and continuous numbers of N actions in one, as environments take them: the only one of the two that there is,
        or a dict of both."""
        if control is None:
            return chosen
        return {"choices": chosen, "controls": control} if self.sizes else control

    def anything(self, count: int, generator: RandomNumbers) -> Any:
        """Actions for ``count`` environments: any choices that are allowed, and standard normal numbers."""
        chosen = self.uniform(count, generator)
        return self.action(chosen, self.standard(count).sample(self.draws(count, generator)) if self.controls else None)

    def mode(self, numbers: Array) -> Any:
        """The most probable actions by a policy's ``numbers`` [N, K + 2 * controls]."""
        logits, gaussians = self.split(numbers)
        return self.action(self.best(logits), None if gaussians is None else gaussians.mean.astype(np.float32))

    def split(self, numbers: Array) -> tuple[Array, Gaussians | None]:
        """A policy's ``numbers`` as those of the choices [N, K] and of the continuous ones."""
        if not self.controls:
            return numbers, None
        size = sum(self.sizes)
        return numbers[:, :size], Gaussians.of(numbers[:, size:])

    def standard(self, count: int) -> Gaussians:
        """The Gaussians of the continuous numbers, where nothing is known."""
        return Gaussians.standard(count, self.controls)

    def draws(self, count: int, generator: RandomNumbers) -> NDArray[np.float64]:
        """What ``Gaussians.sample`` needs for ``count`` environments."""
        return generator.random((count, 2, self.controls))

    def best(self, values: Array) -> NDArray[np.int64]:
        """The value of each choice with the largest number."""
        return _action([part.argmax(axis=1) for part in self._parts(values)], len(values))

    def uniform(self, count: int, generator: RandomNumbers) -> NDArray[np.int64]:
        """Anything that is allowed, each with the same chance, for ``count`` environments."""
        if len(self.sizes) == 1 and self.allowed is None:
            drawn: NDArray[np.int64] = generator.integers(0, self.sizes[0], count)
            return drawn
        draws = generator.random((count, len(self.sizes)))
        if self.allowed is None:
            action: NDArray[np.int64] = (draws * np.array(self.sizes)).astype(np.int64)
            return action
        parts = self._parts(self.allowed)
        nth = [(draws[:, i] * part.sum(axis=1)).astype(np.int64) for i, part in enumerate(parts)]
        # The first value up to which more than n are allowed.
        chosen = [(part.cumsum(axis=1) > n[:, None]).argmax(axis=1) for part, n in zip(parts, nth, strict=True)]
        return _action(chosen, count)

    def sample(self, log_policy: Array, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """By the Gumbel-max trick: the largest of log-probabilities [N, K] with Gumbel noise is a sample of each choice."""
        noise = -np.log(-np.log(np.maximum(uniform, np.finfo(np.float64).tiny)))
        return self.best(log_policy + noise)

    def log_policy(self, logits: Array) -> NDArray[np.float64]:
        """Log-probabilities [N, K] within each choice."""
        parts = [_log_softmax(part) for part in self._parts(logits)]
        return np.concatenate(parts, axis=1) if parts else np.zeros((len(logits), 0))

    def taken(self, values: Array, action: NDArray[np.int64]) -> Array:
        """The numbers [N, choices] of what an action chose."""
        if len(self.sizes) == 1:
            return values[np.arange(len(values)), action][:, None]
        starts = (np.cumsum(self.sizes) - self.sizes).astype(np.int64)
        return np.take_along_axis(values, action + starts, axis=1)

    def largest(self, values: Array) -> Array:
        """The largest number [N, choices] of each choice."""
        return np.stack([part.max(axis=1) for part in self._parts(values)], axis=1)

    def log_uniform(self, count: int) -> NDArray[np.float32]:
        """The log-probability [N] of what ``uniform`` gives."""
        if self.allowed is None:
            return np.full(count, -np.log(self.sizes).sum(), np.float32)
        found: NDArray[np.float32] = -sum(np.log(part.sum(axis=1)) for part in self._parts(self.allowed))
        return found.astype(np.float32)

    def _parts(self, values: Array) -> list[Array]:
        if len(self.sizes) == 1:
            return [values]
        if not self.sizes:
            return []
        return np.split(values, np.cumsum(self.sizes)[:-1], axis=1)


def _action(chosen: list[Array], count: int) -> NDArray[np.int64]:
    if not chosen:
        return np.zeros((count, 0), np.int64)
    return chosen[0] if len(chosen) == 1 else np.stack(chosen, axis=1)


def _log_softmax(logits: Array) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    log_policy: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return log_policy

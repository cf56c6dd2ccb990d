"""What an actor acts with: the latest weights, an epsilon for each environment, and the values it saw on the way."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rljob.actor.compute import acting_copy, choose_compute, copy_weights
from rljob.algorithms import Algorithm
from rljob.api import ApeXDQNParameters, EnvironmentParameters
from rljob.envs.spec import EnvironmentSpec
from rljob.learner.flat import Weights

log = logging.getLogger(__name__)

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """Actions i8[N], and Q(s, a) and max_a Q(s, a) f4[N] of the observations they answer; NaN without weights.

    ``version`` i8[N], or one number for all: the weights that chose.
    """

    action: Array
    q_taken: Array
    value: Array
    version: Array | int

    @classmethod
    def joined(cls, parts: Sequence[Decision]) -> Decision:
        """The decisions for groups of environments as one for all of them, in this order."""
        columns = ([np.asarray(getattr(part, field.name)) for part in parts] for field in fields(cls))
        return cls(*map(np.concatenate, columns))


class Policy:
    """Epsilon-greedy on the latest weights; uniformly random (version 0) until there are any. Single-threaded.

    ``epsilon`` f4[N] is set by ``take_slot``. Weights are swapped between two calls of ``act``, never during one.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        spec: EnvironmentSpec,
        parameters: ApeXDQNParameters,
        environment_parameters: EnvironmentParameters,
        num_envs: int,
        generator: np.random.Generator,
    ) -> None:
        self._algorithm = algorithm
        self._parameters = parameters
        self._num_actions = spec.num_actions
        self._num_envs = num_envs
        self._generator = generator
        self._unknown = np.full(num_envs, np.nan, np.float32)
        self._network = algorithm.build(spec, parameters, environment_parameters)
        sample = torch.zeros((num_envs, *spec.observation_shape), dtype=getattr(torch, spec.frame_dtype))
        self.compute = choose_compute(self._network, sample, parameters.precision)
        self._acting = acting_copy(self._network, self.compute, sample)
        self.epsilon = np.ones(num_envs, np.float32)
        self.version = 0
        self.loaded_at = 0.0

    def take_slot(self, slot: int, slots: int) -> None:
        """Explore as the ``slot``-th of ``slots`` actors (see ``ladder``)."""
        self.epsilon = ladder(self._algorithm, self._parameters, slot, slots, self._num_envs)
        log.info("slot %d of %d, epsilon %.3g to %.3g", slot, slots, self.epsilon.max(), self.epsilon.min())

    def load(self, weights: Weights) -> None:
        """Act with ``weights`` from now on. Raises ``WeightsProblem`` when they belong to another network."""
        weights.load_into(self._network)
        copy_weights(self._network, self._acting)
        if self.version == 0:
            log.info("acting with weights, version %d", weights.version)
        self.version = weights.version
        self.loaded_at = time.monotonic()

    def act(self, observation: Array) -> Decision:
        """Actions for ``observation`` ``[N, S, *F*]``, which is only read."""
        if self.version == 0:
            action = self._generator.integers(0, self._num_actions, self._num_envs)
            return Decision(action, self._unknown, self._unknown, 0)
        action, q_taken, value = self._algorithm.act(self._acting, observation, self.epsilon, self._generator)
        return Decision(action, q_taken, value, self.version)

    def final_values(self, observation: Array | None, truncated: Array) -> Array | None:
        """max_a Q f4[N] of final observations, NaN except where ``truncated``; None when nothing was truncated."""
        if observation is None or not truncated.any():
            return None
        values = self._unknown.copy()
        if self.version > 0:
            # All N rows, though few were truncated: another batch size would round differently.
            every = self._algorithm.q_values(self._acting, observation).max(dim=1).values.numpy()
            values[truncated] = every[truncated]
        return values


def ladder(algorithm: Algorithm, parameters: ApeXDQNParameters, slot: int, slots: int, num_envs: int) -> Array:
    """Epsilons f4[N] of the ``slot``-th of ``slots`` actors: its environments take N neighbouring rungs of the ladder.

    A slot outside the ladder (more actors than the job has slots) wraps around.
    """
    total = max(1, slots) * num_envs
    first = slot % max(1, slots) * num_envs
    base, exponent = parameters.epsilon_base, parameters.epsilon_exponent
    rungs = [algorithm.epsilon_ladder(first + i, total, base, exponent) for i in range(num_envs)]
    return np.array(rungs, np.float32)

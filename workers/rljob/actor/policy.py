"""What an actor acts with: the latest weights, an exploration of its own, and the recurrent memory."""

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from rljob.acting.network import ActingNetwork, choose_compute
from rljob.algorithms.base import AnyAlgorithm
from rljob.algorithms.shapes import shapes_of
from rljob.api import EnvironmentParameters
from rljob.envs import EnvironmentSpec, Observation
from rljob.experience import Decision
from rljob.observation import Array, each, zeros
from rljob.weights.flat import Weights

log = logging.getLogger(__name__)


class LocalPolicy:
    """A network of its own with the latest weights, and how its algorithm explores. Single-threaded.

    ``epsilon`` f4[N] is set by ``take_slot``; ``version`` is 0 until there are weights. The network is on the CPU where that was
    measured to be faster than on ``device``, where observations are, copies to it and back included. ``units``: of a recurrent
    network's memory. ``precision``: that of acting alone, if any.
    """

    def __init__(
        self,
        algorithm: AnyAlgorithm,
        spec: EnvironmentSpec,
        parameters: Any,
        environment_parameters: EnvironmentParameters,
        num_envs: int,
        device: torch.device,
        precision: str | None,
    ) -> None:
        self._algorithm, self._num_envs, self._device = algorithm, num_envs, device
        self.parameters = parameters
        """A learner's live values replace its own (`take_slot`)."""
        network = algorithm.build(spec, parameters, environment_parameters)
        sample = each(lambda part: torch.from_numpy(part).to(device), zeros(spec.columns, num_envs))
        self.units = algorithm.memory_units(parameters)
        devices = [*dict.fromkeys((device, torch.device("cpu")))]
        measured = choose_compute(
            network, algorithm.infer, sample, self.units, precision or parameters.precision, devices
        )
        self.acting = ActingNetwork(network, algorithm, spec.all_choices, measured)
        self.shapes = shapes_of(self.acting.network)
        """The shapes of the weights that it can act with, by name."""
        self.epsilon = np.ones(num_envs, np.float32)
        self.version = 0

    def take_slot(self, slot: int, slots: int) -> None:
        """Explore as the ``slot``-th of ``slots`` actors, in the way of the algorithm."""
        self.epsilon = self._algorithm.exploration(self.parameters, slot, slots, self._num_envs)
        log.info("slot %d of %d, epsilon %.3g to %.3g", slot, slots, self.epsilon.max(), self.epsilon.min())

    def load(self, weights: Weights) -> None:
        """Act with ``weights`` from now on. Raises ``WeightsProblem`` when they belong to another network."""
        self.acting.load(weights)
        if self.version == 0:
            log.info("acting with weights, version %d, on %s", weights.version, self._device)
        self.version = weights.version


class ActingPolicy(LocalPolicy):
    """Acts by the algorithm's rule on the latest weights; uniformly random until there are any.

    Weights are swapped between two calls of ``act``, never during one. A recurrent network's memory goes on from one ``act`` to
    the next until ``ended`` clears it.
    """

    def __init__(
        self,
        algorithm: AnyAlgorithm,
        spec: EnvironmentSpec,
        parameters: Any,
        environment_parameters: EnvironmentParameters,
        num_envs: int,
        generator: np.random.Generator,
        precision: str | None = None,
    ) -> None:
        about = (algorithm, spec, parameters, environment_parameters, num_envs)
        super().__init__(*about, torch.device("cpu"), precision)
        self._spec, self._generator = spec, generator
        self._memory = np.zeros((num_envs, 2, self.units), np.float32)
        self._remembers = self._memory.size > 0

    def act(self, observation: Observation) -> Decision:
        """Actions for ``observation`` ``[N, S, *F*]``, or such of each column, which is only read."""
        choices = self._spec.choices(observation)
        if self.version == 0:
            decision = self._algorithm.random_decision(self._num_envs, choices, self._generator)
            return self._complete(decision, self._memory)
        outputs, after = self.acting.infer(observation, self._memory)
        decision = self._algorithm.decide(outputs.numpy(), self.epsilon, self._generator, choices)
        before = self._memory
        if self._remembers:
            self._memory = after.numpy().copy()
        return self._complete(decision, before)

    def final_values(self, observation: Observation | None, truncated: Array) -> Array | None:
        """The values f4[N] of final observations, NaN except where ``truncated``; None when nothing was truncated."""
        if observation is None or not truncated.any():
            return None
        values: Array = np.full(self._num_envs, np.nan, np.float32)
        if self.version > 0:
            # All N rows, though few were truncated: another batch size would round differently.
            outputs, _ = self.acting.infer(observation, self._memory)
            choices = self._spec.all_choices  # what is not allowed has no value already
            values[truncated] = self._algorithm.state_values(outputs.numpy(), choices)[truncated]
        return values

    def ended(self, rows: Array) -> None:
        """Forget what was seen in the environments (bool[N]) whose episode has ended."""
        if self._remembers:
            self._memory[rows] = 0.0

    def _complete(self, decision: Decision, before: Array) -> Decision:
        return replace(decision, version=self.version, state=before if self._remembers else None)

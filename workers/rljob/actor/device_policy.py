"""What an actor acts with where observations and actions stay on a device."""

import logging
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rljob.acting.device_rule import DeviceDecision, rule_of
from rljob.acting.network import ActingNetwork, choose_compute
from rljob.algorithms.base import AnyAlgorithm
from rljob.algorithms.decision import Inference
from rljob.algorithms.shapes import shapes_of
from rljob.api import EnvironmentParameters
from rljob.envs.spec import EnvironmentSpec
from rljob.observation import each, zeros
from rljob.weights.flat import Weights

log = logging.getLogger(__name__)


class DevicePolicy:
    """``Policy`` on a device: the same rule on the same weights, from tensors to tensors. Single-threaded. The network is on the
    CPU where that was measured to be faster, copies to it and back included.

    ``memory`` float32 [N, 2, H] is what a recurrent network remembers, before the next ``act``; ``ended`` clears rows of it.
    """

    def __init__(
        self,
        algorithm: AnyAlgorithm,
        spec: EnvironmentSpec,
        parameters: Any,
        environment_parameters: EnvironmentParameters,
        num_envs: int,
        device: torch.device,
        seed: int,
        precision: str | None = None,
    ) -> None:
        self._algorithm = algorithm
        self._parameters = parameters
        self._choices = spec.all_choices
        self._num_envs = num_envs
        self._device = device
        self._generator = np.random.default_rng(seed)
        self._rule = rule_of(algorithm, self._choices, device, seed)
        network = algorithm.build(spec, parameters, environment_parameters)
        sample = each(lambda part: torch.from_numpy(part).to(device), zeros(spec.columns, num_envs))
        units = algorithm.memory_units(parameters)
        devices = dict.fromkeys((device, torch.device("cpu")))
        measured = choose_compute(
            network, algorithm.infer, sample, units, parameters.precision, [*devices], own=precision
        )
        self.acting = ActingNetwork(network, algorithm, spec.all_choices, measured, always=precision == "INT8")
        self.remembers = units > 0
        self.memory = torch.zeros(num_envs, 2, units, device=device)
        self.take_epsilon(np.ones(num_envs, np.float32))
        self.version = 0

    def take_slot(self, slot: int, slots: int) -> None:
        """Explore as the ``slot``-th of ``slots`` actors, in the way of the algorithm."""
        self.take_epsilon(self._algorithm.exploration(self._parameters, slot, slots, self._num_envs))
        log.info("slot %d of %d on %s", slot, slots, self._device)

    def take_epsilon(self, epsilon: NDArray[np.float32]) -> None:
        """Explore with ``epsilon`` f4[N] from now on."""
        self.epsilon = epsilon
        self._epsilon = torch.from_numpy(epsilon).to(self._device)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the weights that it can act with, by name."""
        return shapes_of(self.acting.network)

    def load(self, weights: Weights) -> None:
        """Act with ``weights`` from now on. Raises ``WeightsProblem`` when they belong to another network."""
        self.acting.load(weights)
        if self.version == 0:
            log.info("acting with weights, version %d, on %s", weights.version, self._device)
        self.version = weights.version

    def act(self, observation: Tensor) -> DeviceDecision:
        """Actions for ``observation`` [N, S, *F*] on the device, which is only read; nothing is waited for."""
        if self.version == 0:
            decision = self._algorithm.random_decision(self._num_envs, self._choices, self._generator)
            return DeviceDecision.of(decision, self._device)
        with torch.inference_mode():
            outputs, after = self._infer(observation, self.memory)
            if self.remembers:
                self.memory = after
            return self._rule.decide(outputs, self._epsilon)

    def ended(self, rows: Tensor) -> None:
        """Forget what was seen in the environments (bool [N]) whose episode has ended."""
        if self.remembers:
            self.memory = torch.where(rows[:, None, None], 0.0, self.memory)

    def values(self, observation: Tensor, memory: Tensor) -> Tensor:
        """The values float32 [M] of ``observation`` [M, S, *F*], seen with ``memory`` [M, 2, H]; NaN without weights."""
        if self.version == 0:
            return torch.full((len(observation),), torch.nan, device=self._device)
        with torch.inference_mode():
            return self._rule.state_values(self._infer(observation, memory).outputs)

    def _infer(self, observation: Tensor, memory: Tensor) -> Inference:
        """Computed where that was measured to be faster, and given on the simulator's device."""
        there = self.acting.measured.place.device
        inference = self.acting.infer(observation.to(there), memory.to(there))
        return Inference(*(part.to(self._device) for part in inference))

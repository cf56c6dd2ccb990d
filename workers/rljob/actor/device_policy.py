"""What an actor acts with where observations and actions stay on a device."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rljob.acting.compute import acting_copy, choose_compute
from rljob.acting.device_rule import DeviceDecision, rule_of
from rljob.algorithms.base import AnyAlgorithm
from rljob.algorithms.compute import Compute, let_round_to_tf32, native_arithmetic
from rljob.algorithms.shapes import shapes_of
from rljob.algorithms.trunk import FrameNetwork
from rljob.api import EnvironmentParameters
from rljob.envs.spec import EnvironmentSpec
from rljob.observation import each, zeros
from rljob.weights.flat import Weights

log = logging.getLogger(__name__)


class DevicePolicy:
    """``Policy`` on a device: the same rule on the same weights, from tensors to tensors. Single-threaded.

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
    ) -> None:
        self._algorithm = algorithm
        self._parameters = parameters
        self._choices = spec.all_choices
        self._num_envs = num_envs
        self._device = device
        self._generator = np.random.default_rng(seed)
        self._rule = rule_of(algorithm, self._choices, device, seed)
        network = algorithm.build(spec, parameters, environment_parameters)
        sample = each(torch.from_numpy, zeros(spec.columns, num_envs))
        units = algorithm.memory_units(parameters)
        if device.type == "cpu":
            self.compute = choose_compute(network, algorithm.infer, sample, units, parameters.precision)
        else:
            self.compute = _plainest(network, parameters.precision, device)
        self._acting = acting_copy(network.to(device), self.compute)
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
        return shapes_of(self._acting)

    def load(self, weights: Weights) -> None:
        """Act with ``weights`` from now on. Raises ``WeightsProblem`` when they belong to another network."""
        weights.load_into(self._acting)
        if self.version == 0:
            log.info("acting with weights, version %d, on %s", weights.version, self._device)
        self.version = weights.version

    def act(self, observation: Tensor) -> DeviceDecision:
        """Actions for ``observation`` [N, S, *F*] on the device, which is only read; nothing is waited for."""
        if self.version == 0:
            decision = self._algorithm.random_decision(self._num_envs, self._choices, self._generator)
            return DeviceDecision.of(decision, self._device)
        with torch.inference_mode():
            outputs, after = self._algorithm.infer(self._acting, observation, self.memory)
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
            return self._rule.state_values(self._algorithm.infer(self._acting, observation, memory).outputs)


def _plainest(network: FrameNetwork, precision: str, device: torch.device) -> Compute:
    """The simplest way of computing that is allowed on a GPU, since the clock that chooses does not measure a GPU's time."""
    plan = network.compute_plans(precision, native=native_arithmetic(device))[0]
    if device.type == "cuda":
        let_round_to_tf32(plan.arithmetic)
    log.info("inference in %s on %s", plan, device)
    return plan

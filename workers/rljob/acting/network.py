"""The network that a role acts with: computed where and how it was measured, from the weights last loaded."""

import logging
import time
from collections import deque
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from rljob.acting.compute import acting_copy
from rljob.acting.int8 import WITHIN, Int8Trunk
from rljob.algorithms.base import AnyAlgorithm
from rljob.algorithms.compute import Compute, Measured, Place
from rljob.algorithms.decision import Inference
from rljob.algorithms.trunk import FrameNetwork
from rljob.choices import Choices
from rljob.observation import each, rows_of
from rljob.weights.flat import Weights

log = logging.getLogger(__name__)

AGREES: Final = 0.99
"""This share of the recorded observations must have the same greedy action in int8 as in floats."""
NEAR: Final = 0.1
"""Continuous numbers are the same where their means differ by no more than this, in deviations of the policy: draws of the two
can hardly be told apart, at a divergence of 0.005 nats."""
_RECORDED: Final = 256
_RECORD_EVERY: Final = 8
_MOST_LOADS: Final = 512


class ActingNetwork:
    """Computes as ``measured`` says. For one thread.

    In int8 its scales are taken, and its greedy actions compared with those in floats, on observations that it was shown: once
    256 are recorded, and again when twice as many weights have come, after 512 at most. It acts in int8 ``always``, or until the
    next comparison where they agree and what a step saves is more than rounding the weights takes; else in floats.
    """

    def __init__(
        self, network: FrameNetwork, method: AnyAlgorithm, choices: Choices, measured: Measured, *, always: bool = False
    ) -> None:
        self.measured, self._method, self._choices, self._always = measured, method, choices, always
        device, compute = measured.place.device, measured.place.compute
        quantized = compute.arithmetic == "int8"
        self.network = acting_copy(network, measured.otherwise if quantized else compute).to(device)
        self.trunk = Int8Trunk(acting_copy(network, Compute())) if quantized else None
        self.in_int8 = quantized and always
        self.equal_actions: float | None = None
        self._recorded: deque[tuple[Any, Tensor]] = deque()
        self._rows, self._rounded = 0, False
        self._acts, self._loads, self._next_check, self._acts_a_load = 0, 0, 1, 0.0

    def load(self, weights: Weights) -> None:
        """Act with ``weights`` from now on. Raises ``WeightsProblem`` when they belong to another network."""
        weights.load_into(self.network)
        if self.trunk is not None:
            weights.load_into(self.trunk.network)
            self._rounded = False
            self._loads += 1
            self._acts_a_load += (self._acts - self._acts_a_load) / min(self._loads, 16)
            self._acts = 0

    def infer(self, observation: Any, memory: Any) -> Inference:
        """One pass, as ``Algorithm.infer``."""
        if self.trunk is not None:
            self._prepare(self.trunk, observation, memory)
        network = self.trunk.network if self.trunk is not None and self.in_int8 else self.network
        return self._method.infer(network, observation, memory)

    def document(self) -> dict[str, Any]:
        """What a role's status says of it."""
        document = self.measured.document()
        if self.trunk is not None:
            in_use = self.measured.place if self.in_int8 else Place(self.measured.place.device, self.measured.otherwise)
            document |= {"compute": str(in_use), "int8_equal_actions": self.equal_actions}
        return document

    def _prepare(self, trunk: Int8Trunk, observation: Any, memory: Any) -> None:
        if self._acts % _RECORD_EVERY == 0:
            copied = each(lambda part: torch.as_tensor(part).clone(), observation)
            self._recorded.append((copied, torch.as_tensor(memory).clone()))
            self._rows += rows_of(observation)
            while self._rows - rows_of(self._recorded[0][0]) >= _RECORDED:
                self._rows -= rows_of(self._recorded.popleft()[0])
        self._acts += 1
        if self._loads >= self._next_check and self._rows >= _RECORDED:
            self._next_check = self._loads + min(self._loads, _MOST_LOADS)
            self._check(trunk)
        elif self.in_int8 and not self._rounded:
            if self.equal_actions is None:  # nothing is recorded yet
                trunk.calibrate(self._recorded[-1][0])
            trunk.quantize()
        self._rounded = self.in_int8

    def _check(self, trunk: Int8Trunk) -> None:
        """Take the scales that agree best, and decide whether int8 is used until the next time."""
        together = each(lambda *parts: torch.cat(parts), *(observation for observation, _ in self._recorded))
        exact = self._numbers(self.network)
        found: dict[float, tuple[float, float]] = {}
        for within in WITHIN:
            trunk.calibrate(together, within)
            trunk.quantize()
            found[within] = self._agreement(exact, self._numbers(trunk.network))
        within = max(found, key=found.__getitem__)
        trunk.calibrate(together, within)
        began = time.thread_time()
        trunk.quantize()
        loading, self.equal_actions = time.thread_time() - began, found[within][0]
        if not self._always:
            seconds, device = self.measured.seconds, self.measured.place.device
            saved = seconds[str(Place(device, self.measured.otherwise))] - seconds[str(self.measured.place)]
            self.in_int8 = self._acts_a_load * saved > loading and self.equal_actions >= AGREES
        log.info(
            "int8: %.2f %% of greedy actions as in floats, rounding the weights takes %.1f ms for each %.0f steps: acting in %s",
            100 * self.equal_actions, 1e3 * loading, self._acts_a_load, "int8" if self.in_int8 else "floats",
        )  # fmt: skip

    def _agreement(self, exact: Any, other: Any) -> tuple[float, float]:
        """The share of rows with the same greedy action and, for shares that are equal, minus how far numbers are apart."""
        (logits, gaussians), (others, rounded) = self._choices.split(exact), self._choices.split(other)
        same = (self._choices.best(logits) == self._choices.best(others)).reshape(len(exact), -1).all(axis=1)
        apart: Any = np.zeros((len(exact), 1))
        if gaussians is not None and rounded is not None:
            apart = abs(rounded.mean - gaussians.mean) * np.exp(-gaussians.log_std)
        return float((same & (apart <= NEAR).all(axis=1)).mean()), -float(apart.mean())

    def _numbers(self, network: FrameNetwork) -> Any:
        """The numbers of the policy for what is recorded."""
        outputs = torch.cat([self._method.infer(network, *recorded).outputs for recorded in self._recorded])
        return self._method.preferences(outputs).numpy()

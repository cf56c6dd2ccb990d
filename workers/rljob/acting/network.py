"""The network that a role acts with: computed from the weights last loaded, where and how it was measured to be fastest.

A device helps where its gain is more than the way to it and back, bf16 only where the processor multiplies bf16 numbers natively,
and by how much depends on the network and the batch. So every candidate acts a few times, interleaved, on the real input shape,
and is timed.
"""

import copy
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from rljob.acting.int8 import WITHIN, Int8Trunk, computable
from rljob.algorithms.base import AnyAlgorithm, Inference
from rljob.algorithms.compute import (
    Compute,
    DeviceCompute,
    Measured,
    fastest,
    let_round_to_tf32,
    native_arithmetic,
    told,
)
from rljob.algorithms.suits import NOT_IN_INT8
from rljob.algorithms.trunk import FrameNetwork
from rljob.api.networks import NetworkProblem
from rljob.choices import Choices
from rljob.observation import arrays_of, each, rows_of
from rljob.weights.flat import Weights

log = logging.getLogger(__name__)

_BUDGET_SECONDS = 0.5
_CPU = torch.device("cpu")


def choose_compute(
    network: FrameNetwork,
    infer: Callable[[Any, Any, Tensor], Inference],
    observation: Any,
    units: int,
    precision: str,
    devices: Sequence[torch.device] = (_CPU,),
) -> Measured:
    """Where, and in which way, to act with ``network`` on ``observation``, a batch as it will be seen, where it will be; logged.

    ``infer`` and ``units``, of its memory, are the algorithm's: a user's own may evaluate a network otherwise than by calling
    it. ``precision`` is obeyed (``candidates``), the order in memory measured, and Auto lets what each device multiplies natively
    compete. INT8 is taken without a measurement, on the CPU (NetworkProblem where it can't be).
    ``devices``: the one to be preferred first. Observations are taken there and what comes out is taken back, on the clock. On
    CPUs alone that is the CPU time of this thread, which alone computes in an actor: other processes on the core must not
    decide. ``network`` is not changed.
    """
    if precision == "INT8":
        if not computable(network):
            raise NetworkProblem(NOT_IN_INT8)
        return Measured(DeviceCompute(_CPU, Compute("int8")), {})
    home, rows = arrays_of(observation)[0].device, rows_of(observation)
    memory = torch.zeros((rows, 2, units), device=home)
    cuda = any(device.type == "cuda" for device in (home, *devices))

    def run(place: DeviceCompute, acting: FrameNetwork) -> None:
        if place.device.type == "cuda":
            let_round_to_tf32(place.compute.arithmetic)
        taken_there = each(lambda part: part.to(place.device), observation)
        for part in infer(acting, taken_there, memory.to(place.device)):
            part.to(home)
        if cuda:
            torch.cuda.synchronize()

    places = [
        DeviceCompute(device, plan)
        for device in devices
        for plan in network.compute_plans(precision, native=native_arithmetic(device))
    ]
    with torch.inference_mode():
        runs = {place: partial(run, place, acting_copy(network, place.compute).to(place.device)) for place in places}
        chosen, seconds = fastest(runs, time.perf_counter if cuda else time.thread_time, _BUDGET_SECONDS)
    if chosen.device.type == "cuda":
        let_round_to_tf32(chosen.compute.arithmetic)
    log.info("inference on %s (%s for a batch of %d)", chosen, told(seconds) or "the only way", rows)
    return Measured(chosen, {str(place): taken for place, taken in seconds.items()})


def acting_copy(network: FrameNetwork, compute: Compute) -> FrameNetwork:
    """A working copy of ``network`` that only acts, computing as ``compute`` says."""
    chosen = copy.deepcopy(network).compute(compute)
    return chosen.working_copy().requires_grad_(False).eval()


NEAR: Final = 0.1
"""Continuous numbers are the same where their means differ by no more than this, in deviations of the policy: draws of the two
can hardly be told apart, at a divergence of 0.005 nats."""
_RECORDED: Final = 256
_RECORD_EVERY: Final = 8
_MOST_LOADS: Final = 512


class ActingNetwork:
    """Computes as ``measured`` says. For one thread.

    In int8 its scales are taken, and its greedy actions compared with those in floats (``equal_actions``), on observations that
    it was shown: once 256 are recorded, and again when twice as many weights have come, after 512 at most.
    """

    def __init__(self, network: FrameNetwork, method: AnyAlgorithm, choices: Choices, measured: Measured) -> None:
        self.measured, self._method, self._choices = measured, method, choices
        device, compute = measured.place.device, measured.place.compute
        in_int8 = compute.arithmetic == "int8"
        self.network = acting_copy(network, Compute() if in_int8 else compute).to(device)
        self.trunk = Int8Trunk(acting_copy(network, Compute())) if in_int8 else None
        self.equal_actions: float | None = None
        self._recorded: deque[tuple[Any, Tensor]] = deque()
        self._rows, self._acts, self._loads, self._next_check, self._rounded = 0, 0, 0, 1, False

    def load(self, weights: Weights) -> None:
        """Act with ``weights`` from now on. Raises ``WeightsProblem`` when they belong to another network."""
        weights.load_into(self.network)
        if self.trunk is not None:
            weights.load_into(self.trunk.network)
            self._loads += 1
            self._rounded = False

    def infer(self, observation: Any, memory: Any) -> Inference:
        """One pass, as ``Algorithm.infer``."""
        if self.trunk is None:
            return self._method.infer(self.network, observation, memory)
        self._prepare(self.trunk, observation, memory)
        return self._method.infer(self.trunk.network, observation, memory)

    def document(self) -> dict[str, Any]:
        """What a role's status says of it."""
        document = self.measured.document()
        return document if self.trunk is None else document | {"int8_equal_actions": self.equal_actions}

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
            self._take_scales(trunk)
        elif not self._rounded:
            if self.equal_actions is None:  # too little is recorded yet
                trunk.calibrate(self._recorded[-1][0])
            trunk.quantize()
        self._rounded = True

    def _take_scales(self, trunk: Int8Trunk) -> None:
        """Take the scales that agree best with floats."""
        together = each(lambda *parts: torch.cat(parts), *(observation for observation, _ in self._recorded))
        exact = self._numbers(self.network)
        found: dict[float, tuple[float, float]] = {}
        for within in WITHIN:
            trunk.calibrate(together, within)
            trunk.quantize()
            found[within] = self._agreement(exact, self._numbers(trunk.network))
        within = max(found, key=found.__getitem__)
        trunk.calibrate(together, within)
        trunk.quantize()
        self.equal_actions = found[within][0]
        log.info("int8: %.2f %% of greedy actions as in floats", 100 * self.equal_actions)

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

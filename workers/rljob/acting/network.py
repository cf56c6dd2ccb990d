"""The network that a role acts with: computed from the weights last loaded, where and how it was measured to be fastest.

A device helps where its gain is more than the way to it and back, bf16 only where the processor multiplies bf16 numbers natively,
and by how much depends on the network and the batch. So every candidate acts a few times, interleaved, on the real input shape,
and is timed.

In int8, which is asked for, a trunk is computed on a CPU, convolutions included, by oneDNN's kernels, from the weights as
published. Weights are int8 with a scale for each output channel; what layers see are bytes with a scale each, from what they saw
of some observations. Bytes of frames are the first convolution's input as they are: where a mean frame is subtracted, what the
convolution makes of it is, behind. Heads stay float32. What a layer is followed by other than a ReLU is computed in float32.
"""

import copy
import logging
import platform
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

import numpy as np
import torch
from torch import Tensor, nn

from rljob.algorithms.base import AnyAlgorithm, Inference
from rljob.algorithms.compute import (
    Compute,
    DeviceCompute,
    Measured,
    fastest,
    let_round_to_tf32,
    native_arithmetic,
    processor_has,
    told,
)
from rljob.algorithms.suits import NOT_IN_INT8
from rljob.algorithms.trunk import FrameNetwork
from rljob.api.networks import NetworkProblem
from rljob.choices import Choices
from rljob.observation import arrays_of, by_column, each, rows_of
from rljob.weights.flat import Weights

WITHIN = (0.999, 0.99, 0.995, 1.0)
"""Shares of what a layer sees that its scale may be for; more is cut off. A few large numbers cost all others their digits."""


def computable(network: FrameNetwork) -> bool:
    """Whether ``network`` can be computed so here."""
    has_kernels = platform.machine() == "x86_64" and hasattr(torch.ops.onednn, "qconv2d_pointwise")
    return has_kernels and network.in_order


@dataclass(frozen=True, slots=True)
class Scale:
    """A number ``x`` is the byte ``round(x / step) + zero``."""

    step: float
    zero: int = 0

    @classmethod
    def of(cls, seen: Tensor, within: float) -> Self:
        """For the share ``within`` of ``seen``, by size."""
        sizes = seen.abs().flatten()
        largest = max(float(sizes.kthvalue(max(1, int(within * len(sizes)))).values), 1e-6)
        return cls(largest / 127, 128) if float(seen.min()) < 0 else cls(largest / 255)

    def bytes_of(self, x: Tensor) -> Tensor:
        """uint8 of float32 ``x``."""
        return x.mul(1 / self.step).add_(self.zero + 0.5).clamp_(0, 255).to(torch.uint8)


class Int8Trunk:
    """Stands in for the trunk of ``network``, a float32 copy that acts: ``network`` computes in int8 from ``quantize`` on.

    ``calibrate`` takes the scales from observations, and has to come first; ``quantize`` takes the weights of the moment. For
    one thread.
    """

    def __init__(self, network: FrameNetwork) -> None:
        convolutional = len(network.convolutions) > 0
        self.network = network.compute(Compute(channels_last=convolutional, space_to_depth=network.block > 1))
        self._leaf = (network.pictures or network.vectors)[0]
        self._scales: list[Scale] = []
        self._layers: list[Callable[[Tensor], Tensor]] = []
        self._convolutions = sum(isinstance(layer, nn.Conv2d) for layer in network.convolutions)

    @torch.no_grad()
    def calibrate(self, observation: Any, within: float = WITHIN[0]) -> None:
        """Take the scales of what layers see from ``observation`` uint8|float32 [N, S, *F], each for the share ``within``."""
        network = self.network
        column = by_column(network.columns, network.laid_out(observation))
        if self._convolutions:
            x = network._numbers(column[self._leaf.column], self._leaf)
            self._scales = [Scale(network._scale(self._leaf))]
        else:
            x = self._vector(observation)
            self._scales = [Scale.of(x, within)]
        for layer, then in self._parts():
            x = nn.Sequential(layer, *then)(_in_rows(x) if isinstance(layer, nn.Linear) else x)
            self._scales.append(Scale.of(x, within))

    @torch.no_grad()
    def quantize(self) -> None:
        """Compute with the weights that the network has now."""
        network, parts, scales = self.network, self._parts(), self._scales
        last, self._layers = len(parts) - 1, []
        for index, (layer, then) in enumerate(parts):
            given = scales[index + 1] if index < last else None
            if index == 0 and network.centred and self._convolutions:
                self._layers.append(self._of_centred(layer, then, scales[1]))
            else:
                self._layers.append(_layer(layer, then, scales[index], given)[0])
        network.seen, network.computed = self._seen, self._computed  # type: ignore[method-assign]

    def _seen(self, observation: Any) -> Tensor:
        network = self.network
        if not self._convolutions:
            return self._scales[0].bytes_of(self._vector(observation))
        x = by_column(network.columns, network.laid_out(observation))[self._leaf.column]
        for layer in self._layers[: self._convolutions]:
            x = layer(x)
        return _in_rows(x)

    def _computed(self, layers: nn.Sequential, seen: Tensor) -> Tensor:
        for layer in self._layers[self._convolutions :]:
            seen = layer(seen)
        return seen

    def _of_centred(self, layer: nn.Module, then: Sequence[nn.Module], given: Scale) -> Callable[[Tensor], Tensor]:
        """The first convolution, of frames whose mean is subtracted: of the frames, less that of the mean."""
        assert isinstance(layer, nn.Conv2d)
        seen = self._scales[0]
        convolve, weight = _layer(layer, [], seen, None)
        mean = self.network._laid_out_mean()
        mean = mean if mean.dim() == 4 else mean.expand(1, self.network.stack, *mean.shape)
        of_mean, behind = nn.functional.conv2d(mean * seen.step, weight, None, layer.stride), nn.Sequential(*then)
        return lambda frames: given.bytes_of(behind(convolve(frames).sub_(of_mean)))

    def _vector(self, observation: Any) -> Tensor:
        network = self.network
        return network._row(by_column(network.columns, observation), network.vectors)

    def _parts(self) -> list[tuple[Any, list[nn.Module]]]:
        """Each layer and what follows it up to the next, with the weights of the moment: the first convolution as it sees blocks
        of pixels, and the first dense layer as it sees pixels in rows."""
        network, parts, channels = self.network, list[tuple[Any, list[nn.Module]]](), 0
        for layer in (*network.convolutions, *network.dense):
            found: Any = layer
            if not isinstance(layer, nn.Conv2d | nn.Linear):
                parts[-1][1].append(layer)
                continue
            if isinstance(layer, nn.Conv2d):
                channels = layer.out_channels
                if not parts and network.plan.space_to_depth:
                    found = _like(layer, nn.functional.pixel_unshuffle(layer.weight, network.block), stride=(1, 1))
            elif channels:
                weight = layer.weight.view(layer.out_features, channels, -1).transpose(1, 2).flatten(1)
                found, channels = _like(layer, weight), 0
            parts.append((found, []))
        return parts


def _like(layer: Any, weight: Tensor, **changed: Any) -> Any:
    """``layer`` with other weights; the same bias."""
    other = copy.copy(layer)
    other._parameters = {"weight": nn.Parameter(weight.contiguous(), requires_grad=False), "bias": layer.bias}
    other.__dict__.update(changed)
    return other


def _in_rows(x: Tensor) -> Tensor:
    """[N, C, H, W], whose channels lie beside each other in memory, as rows [N, H * W * C] without a copy."""
    return x.permute(0, 2, 3, 1).flatten(1) if x.dim() == 4 else x


def _layer(
    layer: nn.Conv2d | nn.Linear, then: Sequence[nn.Module], seen: Scale, given: Scale | None
) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """``layer`` and what follows it, from bytes of ``seen`` to bytes of ``given``, or to float32 where that is None; and the
    weights as they are after rounding."""
    onednn, weight = torch.ops.onednn, layer.weight
    by_channel = (-1, *[1] * (weight.dim() - 1))
    # Processors without VNNI add up two products of bytes in 16 bits.
    largest = 127 if processor_has("avx512_vnni", "amx_int8") else 63
    steps = (weight.flatten(1).abs().amax(1) / largest).clamp_min(1e-9)
    rounded = (weight / steps.view(by_channel)).round_().to(torch.int8)
    fused = len(then) == 1 and isinstance(then[0], nn.ReLU)
    to_bytes = fused and given is not None
    out = (given.step, given.zero, torch.uint8) if to_bytes and given is not None else (1.0, 0, torch.float32)
    zeros, after = torch.zeros(len(steps), dtype=torch.int64), "relu" if fused else "none"
    where: tuple[Any, ...] = ()
    if isinstance(layer, nn.Conv2d):
        where = (layer.stride, layer.padding, layer.dilation, layer.groups)
        packed, kernel = onednn.qconv_prepack(rounded, steps, seen.step, seen.zero, *where), onednn.qconv2d_pointwise
    else:
        packed, kernel = onednn.qlinear_prepack(rounded, None), onednn.qlinear_pointwise
    bias, behind = layer.bias, nn.Sequential() if fused else nn.Sequential(*then)

    def run(x: Tensor) -> Tensor:
        x = behind(kernel(x, seen.step, seen.zero, packed, steps, zeros, bias, *where, *out, after, [], ""))
        return x if to_bytes or given is None else given.bytes_of(x)

    return run, rounded * steps.view(by_channel)


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

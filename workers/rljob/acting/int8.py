"""A network's trunk computed in int8 on a CPU, convolutions included, by oneDNN's kernels, from the weights as published.

Weights are int8 with a scale for each output channel; what layers see are bytes with a scale each, from what they saw of some
observations. Bytes of frames are the first convolution's input as they are: where a mean frame is subtracted, what the
convolution makes of it is, behind. Heads stay float32. What a layer is followed by other than a ReLU is computed in float32.
"""

import copy
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from rljob.algorithms.compute import Compute, processor_has
from rljob.algorithms.trunk import FrameNetwork
from rljob.observation import by_column

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
    steps = (weight.flatten(1).abs().amax(1) / _largest_weight()).clamp_min(1e-9)
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


def _largest_weight() -> int:
    """127, or 63 on processors that add up two products of bytes in 16 bits: those without VNNI."""
    return 127 if processor_has("avx512_vnni", "amx_int8") else 63

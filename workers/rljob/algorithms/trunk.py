"""What all networks share: how raw frames become features, and in which precision and layout that is computed."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from math import prod
from typing import Self

import torch
from torch import Tensor, nn


class FrameNetwork(nn.Module):
    """Base of every network: ``features`` of raw observations by ``convolutions`` and ``dense``, which the subclass builds.

    The trunk runs in bf16 autocast when ``bf16`` is set and in channels-last layout when ``channels_last`` is set (both are
    switches of the running process, see ``compute``; they are no part of the weights). Heads are always float32: a value
    rounded to 8 bits would put a floor under the temporal-difference error.
    """

    mean: Tensor

    def __init__(self, frame_shape: Sequence[int], scale: float, *, centred: bool) -> None:
        super().__init__()
        self.convolutions: nn.Sequential = nn.Sequential()
        self.dense: nn.Sequential = nn.Sequential()
        self.register_buffer("mean", torch.zeros(tuple(frame_shape)))
        self.scale = scale
        self.centred = centred
        self.bf16 = False
        self.channels_last = False

    def compute(self, *, bf16: bool, channels_last: bool) -> Self:
        """Choose how the trunk is computed from now on; returns self. Shapes and meaning of the result do not change."""
        self.bf16 = bf16
        self.channels_last = channels_last and len(self.convolutions) > 0
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        self.convolutions.to(memory_format=layout)  # type: ignore[call-overload]
        return self

    def working_copy(self) -> Self:
        """A copy that computes the same, bit for bit, with the trunk's weights stored in bf16 where it computes in bf16.

        Autocast would convert them anew in every pass, which for a wide dense layer costs as much as the product itself.
        Gradients of those weights are bf16, as they are under autocast before they are converted back.
        """
        copied = copy.deepcopy(self)
        if self.bf16:
            for module in (*copied.convolutions.modules(), *copied.dense.modules()):
                if isinstance(module, nn.Linear | nn.Conv2d):
                    module.to(torch.bfloat16)
        return copied

    @torch.no_grad()
    def centre(self, mean: Tensor) -> None:
        """Set the mean frame [*F*] that is subtracted from every frame. Raises ValueError for a network not to be centred."""
        if not self.centred:
            raise ValueError("this network does not centre its input; set the environment's centreInput")
        self.mean.copy_(mean)

    def laid_out(self, observation: Tensor) -> Tensor:
        """``observation`` [B, S, *F] in the memory layout that ``features`` computes in; at no cost where it is already.

        Reordering bytes is four times cheaper than reordering the floats made from them.
        """
        return channels_last(observation) if self.channels_last else observation

    def features(self, observation: Tensor) -> Tensor:
        """Dense features float32 [B, width] of raw observations [B, S, *F]."""
        frames = self.laid_out(observation)
        if self.bf16 and not self.centred and frames.dtype == torch.uint8:
            x = frames.to(torch.bfloat16)  # exact for bytes, so that scaling rounds once, as autocast would
        else:
            x = frames.to(torch.float32, copy=True)
        if self.centred:
            x.sub_(self.mean)
        x.mul_(self.scale)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.bf16):
            return self.dense(self.convolutions(x).flatten(1)).float()  # type: ignore[no-any-return]


def channels_last(frames: Tensor) -> Tensor:
    """``frames`` [B, S, H, W] with the S values of a pixel beside each other in memory; the same tensor if they are.

    Stacks of four byte images, the usual ones, are put together as words on a CPU: torch copies single bytes at a third
    of that speed.
    """
    if frames.is_contiguous(memory_format=torch.channels_last):
        return frames
    if frames.dtype != torch.uint8 or frames.shape[1] != 4 or not frames.is_cpu or sys.byteorder != "little":
        return frames.contiguous(memory_format=torch.channels_last)
    first, second, third, fourth = frames.to(torch.int32).unbind(1)
    word = (fourth << 24).bitwise_or_(third << 16).bitwise_or_(second << 8).bitwise_or_(first)
    return word.view(torch.uint8).view(*word.shape, 4).permute(0, 3, 1, 2)


def convolution_layers(
    channels: int, sides: Sequence[int], layers: Sequence[tuple[int, int, int]], *, layer_norm: bool
) -> tuple[nn.Sequential, int]:
    """Convolutions (out channels, kernel, stride) with ReLU, and the number of features they leave; without any (vectors),
    nothing, and the flattened stack. ``layer_norm``: normalise before every ReLU (GroupNorm with one group)."""
    modules: list[nn.Module] = []
    for out_channels, kernel, stride in layers:
        modules.append(nn.Conv2d(channels, out_channels, kernel, stride))
        if layer_norm:
            modules.append(nn.GroupNorm(1, out_channels))
        modules.append(nn.ReLU(inplace=True))
        channels, sides = out_channels, tuple((side - kernel) // stride + 1 for side in sides)
    return nn.Sequential(*modules), channels * prod(sides)


def dense_layers(width: int, hidden: int, depth: int, *, streams: int = 1, layer_norm: bool) -> nn.Sequential:
    """Hidden dense layers; ``streams`` independent ones of width ``hidden`` are computed as one matrix product."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers.append(nn.Linear(width, streams * hidden))
        if layer_norm:  # over each stream by itself; for one stream this is LayerNorm
            layers.append(nn.LayerNorm(hidden) if streams == 1 else nn.GroupNorm(streams, streams * hidden))
        layers.append(nn.ReLU(inplace=True))
        width = streams * hidden
    return nn.Sequential(*layers)

"""What all networks share: how raw frames become features, and in which precision and layout that is computed."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from math import prod
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from rljob.algorithms.compute import Arithmetic, Compute, candidates
from rljob.algorithms.layout import channels_last, planes, space_to_depth
from rljob.api.networks import Image


class FrameNetwork(nn.Module):
    """Base of every network: ``features`` of raw observations by ``convolutions`` and ``dense``, which the subclass builds.

    ``plan`` is how the trunk is computed in the running process, in 16 bits under autocast (see ``compute``; it is no part of
    the weights). Heads are always float32: a value rounded to 8 bits would put a floor under the temporal-difference error.
    ``stack``: frames of an observation; 0 where the first layer, a ``Conv2d``, says it.
    """

    mean: Tensor

    def __init__(self, frame_shape: Sequence[int], scale: float, *, centred: bool, stack: int = 0) -> None:
        super().__init__()
        if not isinstance(scale, int | float):  # the manifest's inputScale, which may be left open
            raise TypeError(f"scale: expected a number, such as spec.input_scale(env_params), got {scale}")
        self.convolutions: nn.Sequential = nn.Sequential()
        self.dense: nn.Sequential = nn.Sequential()
        self.register_buffer("mean", torch.zeros(tuple(frame_shape)))
        self.frame_shape = tuple(frame_shape)
        self.image = Image.of(frame_shape)
        self.scale = scale
        self.stack = stack
        self.centred = centred
        self.plan = Compute()

    @property
    def block(self) -> int:
        """Side of the blocks of pixels that the first convolution can see as channels; 1 where it cannot."""
        if not self.convolutions or not isinstance(self.convolutions[0], nn.Conv2d):  # a network of the user's own
            return 1
        (stride, _), (kernel, _) = self._first.stride, self._first.kernel_size
        return stride if kernel % stride == 0 and self._first.padding == (0, 0) else 1

    def compute_plans(self, precision: str, *, native: Sequence[Arithmetic]) -> tuple[Compute, ...]:
        """How this network may be computed, plainest first; see ``candidates``."""
        convolutional = len(self.convolutions) > 0 and self.image is not None
        return candidates(precision, native=native, convolutional=convolutional, blocks=self.block > 1)

    def compute(self, plan: Compute) -> Self:
        """Choose how the trunk is computed from now on; returns self. Shapes and meaning of the result do not change.

        Raises ValueError for an order in memory that this network does not have.
        """
        if plan.channels_last and not self.convolutions:
            raise ValueError("a network without convolutions has no channels to put last")
        if plan.space_to_depth and self.block == 1:
            raise ValueError("the first convolution of this network does not see whole blocks of pixels")
        self.plan = plan
        layout = torch.channels_last if plan.channels_last else torch.contiguous_format
        self.convolutions.to(memory_format=layout)  # type: ignore[call-overload]
        return self

    def working_copy(self) -> Self:
        """A copy that computes the same, bit for bit, with the trunk's weights stored in 16 bits where it computes in those.

        Autocast would convert them anew in every pass, which for a wide dense layer costs as much as the product itself.
        Gradients of those weights have 16 bits, as they are under autocast before they are converted back.
        """
        copied = copy.deepcopy(self)
        if (half := self.plan.half) is not None:
            for module in (*copied.convolutions.modules(), *copied.dense.modules()):
                if isinstance(module, nn.Linear | nn.Conv2d):
                    module.to(half)
        return copied

    @torch.no_grad()
    def centre(self, mean: Tensor) -> None:
        """Set the mean frame [*F*] that is subtracted from every frame. Raises ValueError for a network not to be centred."""
        if not self.centred:
            raise ValueError("this network does not centre its input; set the environment's centreInput")
        self.mean.copy_(mean)

    def laid_out(self, observation: Tensor) -> Tensor:
        """``observation`` [B, S, *F] in the memory layout that ``features`` computes in; at no cost where it is already.

        Convolutions see the S frames' values of a pixel as channels, [B, S * C, H, W]. Reordering bytes is four times cheaper
        than reordering the floats made from them.
        """
        if self.image is not None and self.convolutions and len(self.frame_shape) == 3 and observation.dim() == 5:
            observation = planes(observation, channels_first=self.image.channels_first)
        if self.plan.space_to_depth:
            as_blocks = observation.shape[1] != self._first.in_channels
            return observation if as_blocks else space_to_depth(observation, self.block)
        return channels_last(observation) if self.plan.channels_last else observation

    def features(self, observation: Tensor) -> Tensor:
        """Dense features float32 [B, width] of raw observations [B, S, *F], or of ``laid_out`` ones."""
        frames = self.laid_out(observation)
        half = self.plan.half
        if half is not None and not self.centred and frames.dtype == torch.uint8:
            x = frames.to(half)  # exact for bytes, so that scaling rounds once, as autocast would
        else:
            x = frames.to(torch.float32, copy=True)
        if self.centred:
            x.sub_(self._laid_out_mean())
        x.mul_(self.scale)
        with torch.autocast(x.device.type, half or torch.bfloat16, enabled=half is not None):
            return self.dense(self._convolved(x).flatten(1)).float()  # type: ignore[no-any-return]

    def _laid_out_mean(self) -> Tensor:
        """The mean frame, to be subtracted from frames that are laid out."""
        if self.image is None or not self.convolutions or (len(self.frame_shape) == 2 and not self.plan.space_to_depth):
            return self.mean
        stack = self.stack or self._first.in_channels // self.image.channels
        mean = self.mean.expand(1, stack, *self.frame_shape)
        if len(self.frame_shape) == 3:
            mean = planes(mean, channels_first=self.image.channels_first)
        return space_to_depth(mean, self.block) if self.plan.space_to_depth else mean

    def _convolved(self, x: Tensor) -> Tensor:
        if not self.plan.space_to_depth:
            return self.convolutions(x)  # type: ignore[no-any-return]
        weight = functional.pixel_unshuffle(self._first.weight, self.block)
        x = functional.conv2d(x, weight.contiguous(memory_format=torch.channels_last), self._first.bias)
        for layer in list(self.convolutions)[1:]:
            x = layer(x)
        return x

    @property
    def _first(self) -> nn.Conv2d:
        """The convolution that sees the frames. What traces a network reads all of its attributes: torch.jit does."""
        first = self.convolutions[0] if self.convolutions else None
        if not isinstance(first, nn.Conv2d):
            raise AttributeError("the first layer of this network is no convolution")
        return first


def seen_by_convolutions(stack: int, frame_shape: Sequence[int]) -> tuple[int, int, int]:
    """(channels, height, width) of ``stack`` frames that are images, as convolutions see them."""
    image = Image.of(frame_shape)
    assert image is not None, f"frames of shape {tuple(frame_shape)} are no images"
    return stack * image.channels, image.height, image.width


def convolution_layers(
    stack: int, frame_shape: Sequence[int], layers: Sequence[tuple[int, int, int]], *, layer_norm: bool = False
) -> tuple[nn.Sequential, int]:
    """Convolutions (out channels, kernel, stride) with ReLU, and the number of features they leave; without any (an MLP),
    nothing, and the flattened stack. ``layer_norm``: normalise before every ReLU (GroupNorm with one group)."""
    if not layers:
        return nn.Sequential(), stack * prod(frame_shape)
    channels, *sides = seen_by_convolutions(stack, frame_shape)
    modules: list[nn.Module] = []
    for out_channels, kernel, stride in layers:
        modules.append(nn.Conv2d(channels, out_channels, kernel, stride))
        if layer_norm:
            modules.append(nn.GroupNorm(1, out_channels))
        modules.append(nn.ReLU(inplace=True))
        channels, sides = out_channels, [(side - kernel) // stride + 1 for side in sides]
    return nn.Sequential(*modules), channels * prod(sides)


def dense_layers(width: int, hidden: int, depth: int, *, streams: int = 1, layer_norm: bool = False) -> nn.Sequential:
    """Hidden dense layers; ``streams`` independent ones of width ``hidden`` are computed as one matrix product."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers.append(nn.Linear(width, streams * hidden))
        if layer_norm:  # over each stream by itself; for one stream this is LayerNorm
            layers.append(nn.LayerNorm(hidden) if streams == 1 else nn.GroupNorm(streams, streams * hidden))
        layers.append(nn.ReLU(inplace=True))
        width = streams * hidden
    return nn.Sequential(*layers)

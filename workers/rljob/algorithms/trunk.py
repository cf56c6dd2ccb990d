"""What all networks share: how observations become features, and in which precision and layout that is computed."""

import copy
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rljob.algorithms.batches import Observation
from rljob.algorithms.compute import Arithmetic, Compute, candidates
from rljob.algorithms.distributions import TensorChoices, masked
from rljob.algorithms.layout import channels_last, planes, space_to_depth
from rljob.api import EnvironmentParameters
from rljob.api.networks import Image
from rljob.envs.spec import EnvironmentSpec, Leaf
from rljob.observation import by_column

NORMALIZED_AT_MOST = 10.0
"""Standard deviations from its mean beyond which a normalised number is cut off."""
STATISTICS = ("observation_mean", "observation_scale", "return_scale")
"""The buffers of running statistics. Those of them that a network has are set by its learner alone."""
_IN_ORDER = (nn.Conv2d, nn.Linear, nn.ReLU, nn.Tanh, nn.GroupNorm, nn.LayerNorm)


class FrameNetwork(nn.Module):
    """Base of every network: ``features`` of raw observations by ``convolutions`` and ``dense``, which the subclass builds.

    A picture goes through convolutions (``convolutions`` the first one, ``more_convolutions`` any others), vectors are scaled,
    indices become one-hot, and all of that side by side is what ``dense`` sees; ``encode`` builds it. A mask is seen by
    ``masked`` alone, and leaves of the role critic by ``critic_row``.

    ``plan`` is how the trunk is computed in the running process, in 16 bits under autocast (see ``compute``; it is no part of
    the weights). Heads are always float32: a value rounded to 8 bits would put a floor under the temporal-difference error.
    ``choices``: what can be chosen among its numbers.

    ``normalize_observations``: the floats among the vectors (``normalized``) become ``(x - observation_mean) *
    observation_scale``, cut off at ``NORMALIZED_AT_MOST``. ``normalize_returns``: the value head speaks in units of
    ``return_scale``, and the network in those of the reward. Without them there are no such buffers.
    """

    mean: Tensor
    observation_mean: Tensor | None
    observation_scale: Tensor | None
    return_scale: Tensor | None

    def __init__(
        self,
        spec: EnvironmentSpec,
        env_params: EnvironmentParameters,
        *,
        normalize_observations: bool = False,
        normalize_returns: bool = False,
    ) -> None:
        super().__init__()
        self.convolutions: nn.Sequential = nn.Sequential()
        self.more_convolutions: nn.ModuleList = nn.ModuleList()
        self.dense: nn.Sequential = nn.Sequential()
        self.choices = TensorChoices(spec.action_sizes)
        self.columns = spec.columns
        self.register_buffer("mean", torch.zeros(self.columns[0].shape))
        self.pictures = tuple(leaf for leaf in spec.observation if leaf.role == "image")
        self.vectors = tuple(leaf for leaf in spec.observation if leaf.role in ("vector", "index"))
        self.critic_leaves = tuple(leaf for leaf in spec.observation if leaf.role == "critic")
        numbers = tuple(leaf for leaf in (*self.vectors, *self.critic_leaves) if leaf.column == "vector")
        floats = tuple(leaf for leaf in numbers if np.dtype(leaf.dtype).kind == "f")
        self.normalized = floats if normalize_observations else ()
        width = next((column.shape[0] for column in self.columns if column.name == "vector"), 0)
        self.register_buffer("observation_mean", torch.zeros(width) if self.normalized else None)
        self.register_buffer("observation_scale", torch.ones(width) if self.normalized else None)
        self.register_buffer("return_scale", torch.ones(()) if normalize_returns else None)
        self.mask = spec.mask
        self.stack = spec.stack
        self.image = Image.of(self.pictures[0].shape) if self.pictures else None
        self.centred = env_params.centre_input
        self.input_scale = env_params.input_scale
        self.named = False
        self.plan = Compute()

    def encode(self, layers: Callable[[int, tuple[int, ...]], tuple[nn.Sequential, int]]) -> int:
        """Build the convolutions of each picture with ``layers(stack, shape)``, which also gives the number of features they
        leave; returns how many there are of an observation, vectors and one-hots included."""
        built = [layers(self.stack, picture.shape) for picture in self.pictures]
        if built:
            self.convolutions = built[0][0]
            self.more_convolutions.extend(layers for layers, _ in built[1:])
        return sum(width for _, width in built) + row_width(self.vectors)

    @property
    def block(self) -> int:
        """Side of the blocks of pixels that the first convolution can see as channels; 1 where it cannot."""
        if not self.convolutions or not isinstance(self.convolutions[0], nn.Conv2d):  # a network of the user's own
            return 1
        (stride, _), (kernel, _) = self._first.stride, self._first.kernel_size
        return stride if kernel % stride == 0 and self._first.padding == (0, 0) else 1

    @property
    def in_order(self) -> bool:
        """Whether it is convolutions and dense layers one behind the other, of one picture or of vectors, as int8 takes it."""
        layers = [*self.convolutions, *self.dense]
        return (
            not self.named
            and bool(layers)
            and all(isinstance(layer, _IN_ORDER) for layer in layers)
            and not self.more_convolutions
            and len({leaf.column for leaf in (*self.pictures, *self.vectors)}) == 1
            and bool(self.convolutions) == bool(self.pictures)
            and getattr(self, "critic_dense", None) is None
        )

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

    def in_reward_units(self, value: Tensor) -> Tensor:
        """What the value head says, as the rewards' own units have it."""
        return value if self.return_scale is None else value * self.return_scale

    def in_units_of_returns(self, reward: Tensor) -> Tensor:
        """Numbers in units of the reward as the value head has them: only scaled, for a shift would change the task."""
        return reward if self.return_scale is None else reward / self.return_scale

    def laid_out(self, observation: Observation) -> Observation:
        """``observation`` [B, S, *F] in the memory layout that ``features`` computes in; at no cost where it is already.

        Convolutions see the S frames' values of a pixel as channels, [B, S * C, H, W]. Reordering bytes is four times cheaper
        than reordering the floats made from them. With several columns this is about the first picture.
        """
        if isinstance(observation, Mapping):
            frames = observation.get("frames")
            return observation if frames is None else {**observation, "frames": self._laid_out(frames)}
        return self._laid_out(observation) if self.pictures else observation

    def _laid_out(self, frames: Tensor) -> Tensor:
        if self.convolutions:
            frames = _planes(frames, self.pictures[0])
        if self.plan.space_to_depth:
            as_blocks = frames.shape[1] != self._first.in_channels
            return frames if as_blocks else space_to_depth(frames, self.block)
        return channels_last(frames) if self.plan.channels_last else frames

    def features(self, observation: Observation) -> Tensor:
        """Dense features float32 [B, width] of raw observations [B, S, *F], or of ``laid_out`` ones."""
        return self.computed(self.dense, self.seen(observation))

    def computed(self, layers: nn.Sequential, seen: Tensor) -> Tensor:
        """Float32 [B, width]: ``layers`` of what ``seen`` gives, in the arithmetic of the trunk."""
        half = self.plan.half
        with torch.autocast(seen.device.type, half or torch.bfloat16, enabled=half is not None):
            return layers(seen).float()  # type: ignore[no-any-return]

    def seen(self, observation: Observation) -> Tensor:
        """What dense layers see [B, width]: features of pictures, vectors and one-hots side by side."""
        arrays = by_column(self.columns, self.laid_out(observation))
        pixels = [self._numbers(arrays[leaf.column], leaf) for leaf in self.pictures]
        row = self._row(arrays, self.vectors) if self.vectors else None
        first = pixels[0] if row is None else row
        half = self.plan.half
        with torch.autocast(first.device.type, half or torch.bfloat16, enabled=half is not None):
            if self.named:
                return self._own(pixels, arrays).flatten(1)
            parts = [self._convolved(pixels[0]).flatten(1)] if pixels else []
            parts += [more(x).flatten(1) for more, x in zip(self.more_convolutions, pixels[1:], strict=True)]
            if row is not None:
                parts.append(row)
            return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def critic_row(self, observation: Observation) -> Tensor:
        """Leaves of the role critic, float32 [B, width]: those of a learner's losses, which acting never needs."""
        return self._row(by_column(self.columns, observation), self.critic_leaves)

    def masked(self, numbers: Tensor, observation: Observation) -> Tensor:
        """``numbers`` [B, K], one for each value of each choice, where those of what a mask forbids are ``FORBIDDEN``."""
        if self.mask is None:
            return numbers
        return masked(numbers, by_column(self.columns, observation)[self.mask.column][..., -1, self.mask.span] != 0)

    def _numbers(self, frames: Tensor, leaf: Leaf) -> Tensor:
        """A picture's frames, laid out, as numbers for its first layer."""
        half = self.plan.half
        frames = _planes(frames, leaf) if self.convolutions else frames
        if half is not None and not self.centred and frames.dtype == torch.uint8:
            x = frames.to(half)  # exact for bytes, so that scaling rounds once, as autocast would
        else:
            x = frames.to(torch.float32, copy=True)
        if self.centred:
            x.sub_(self._laid_out_mean())
        return x.mul_(self._scale(leaf))

    def _row(self, arrays: Mapping[str, Tensor], leaves: Sequence[Leaf]) -> Tensor:
        """Vectors, normalised or scaled, and indices, one-hot, side by side [B, width]."""
        parts = [self._part(arrays[leaf.column][:, -1, leaf.span], leaf) for leaf in leaves]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _part(self, row: Tensor, leaf: Leaf) -> Tensor:
        if leaf.sizes:
            starts = [sum(leaf.sizes[:index]) for index in range(len(leaf.sizes))]
            ones = torch.zeros(row.shape[0], sum(leaf.sizes), device=row.device)  # no len: a trace keeps it
            return ones.scatter_(1, row.long() + torch.tensor(starts, device=row.device), 1.0)
        x = row.to(torch.float32, copy=True)
        if leaf in self.normalized:
            assert self.observation_mean is not None
            assert self.observation_scale is not None
            x.sub_(self.observation_mean[leaf.span]).mul_(self.observation_scale[leaf.span])
            return x.clamp_(-NORMALIZED_AT_MOST, NORMALIZED_AT_MOST)
        if self.centred:
            x.sub_(self.mean)
        return x.mul_(self._scale(leaf))

    def _scale(self, leaf: Leaf) -> float:
        return self.input_scale or leaf.scale

    def _own(self, pixels: Sequence[Tensor], arrays: Mapping[str, Tensor]) -> Tensor:
        """Features of a network of the user's own: of what it sees alone, or of the leaves by their paths."""
        seen = {leaf.path: x for leaf, x in zip(self.pictures, pixels, strict=True)}
        seen |= {leaf.path: self._part(arrays[leaf.column][:, -1, leaf.span], leaf) for leaf in self.vectors}
        found: Tensor = self.convolutions(seen if len(seen) > 1 else next(iter(seen.values())))
        return found

    def _laid_out_mean(self) -> Tensor:
        """The mean frame, to be subtracted from frames that are laid out."""
        shape = self.columns[0].shape
        if self.image is None or not self.convolutions or (len(shape) == 2 and not self.plan.space_to_depth):
            return self.mean
        mean = self.mean.expand(1, self.stack, *shape)
        if len(shape) == 3:
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


def _planes(frames: Tensor, leaf: Leaf) -> Tensor:
    """Frames of a picture with a colour's values as planes of their own, if they are not yet."""
    image = Image.of(leaf.shape)
    return planes(frames, channels_first=image.channels_first) if image is not None and frames.dim() == 5 else frames


def row_width(leaves: Sequence[Leaf]) -> int:
    """Numbers of ``leaves`` beside each other, indices one-hot."""
    return sum(sum(leaf.sizes) or leaf.size for leaf in leaves)


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


def dense_layers(
    width: int, hidden: int, depth: int, *, streams: int = 1, layer_norm: bool = False, tanh: bool = False
) -> nn.Sequential:
    """Hidden dense layers; ``streams`` independent ones of width ``hidden`` are computed as one matrix product. ``tanh``: in the
    place of ReLU."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers.append(nn.Linear(width, streams * hidden))
        if layer_norm:  # over each stream by itself; for one stream this is LayerNorm
            layers.append(nn.LayerNorm(hidden) if streams == 1 else nn.GroupNorm(streams, streams * hidden))
        layers.append(nn.Tanh() if tanh else nn.ReLU(inplace=True))
        width = streams * hidden
    return nn.Sequential(*layers)

"""The deep residual network of the IMPALA paper (Espeholt et al. 2018, figure 3 right), with its channels as a parameter.

    network: impala_resnet.py:ImpalaResNet
    networkParameters: {channels: [16, 32, 32]}

For each number of channels: a convolution, a pooling of stride 2 and two residual blocks. The dense layer behind it, a memory and
the heads are the algorithm's.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from rljob.plugins import Integer, ParameterSet
from torch import Tensor, nn
from torch.nn import functional


class ResNetParameters(ParameterSet):
    """Parameters of the residual network."""

    channels: Annotated[list[Annotated[int, Integer(1, 1024)]], Field(min_length=1, max_length=6)] = Field(
        default_factory=lambda: [16, 32, 32]
    )
    """Channels of each section; every section halves height and width."""
    blocks: Annotated[int, Integer(1, 8)] = 2
    """Residual blocks of a section."""


class ImpalaResNet(nn.Module):
    """``forward(frames float32 [B, C, H, W]) -> float32 [B, C', H', W']``."""

    def __init__(self, inputs: tuple[int, ...], parameters: ResNetParameters) -> None:
        super().__init__()
        if len(inputs) != 3:
            raise ValueError(f"images (channels, height, width) are needed, not {inputs}")
        layers: list[nn.Module] = []
        before = inputs[0]
        for channels in parameters.channels:
            layers += [nn.Conv2d(before, channels, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1)]
            layers += [Residual(channels) for _ in range(parameters.blocks)]
            before = channels
        self.layers = nn.Sequential(*layers, nn.ReLU())

    def forward(self, frames: Tensor) -> Tensor:
        return self.layers(frames)


class Residual(nn.Module):
    """Two 3x3 convolutions, each behind a ReLU, added to their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, frames: Tensor) -> Tensor:
        return frames + self.second(functional.relu(self.first(functional.relu(frames))))

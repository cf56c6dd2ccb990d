"""Q-networks: Nature, Compact, Small and MLP. Which of them sees frames of which shape is in ``rljob.api.networks``.

A network maps stacked observations to action values, ``[B, S, *F] -> float32[B, A]``. It owns what must be identical wherever
the policy runs (actor, learner, evaluator, checkpoint): the normalisation of raw frames, the dueling combination, and the
precision in which the trunk is computed. Parameters are always float32; bf16 is a way to compute, never a way to store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from rljob.algorithms import convolutions
from rljob.algorithms.own_network import own_layers
from rljob.algorithms.trunk import FrameNetwork, convolution_layers, dense_layers
from rljob.api.networks import resolved_network


@dataclass(frozen=True, slots=True)
class QNetworkConfig:
    """What a Q-network is built from.

    ``kind``: Nature, Compact, Small or MLP, or Auto, which chooses by ``frame_shape``.
    ``hidden_units``: width of the dense layers, 0 for the kind's own (Nature 512, all others 128).
    ``layer_norm``: normalise before every ReLU (GroupNorm with one group after convolutions, LayerNorm after dense layers).
    ``scale``: network input is ``(frame - mean) * scale``. ``centred``: a mean frame will be set; without it, nothing is
    subtracted. ``own``: parameters of a network of the user's own, whose name ``kind`` then is.
    """

    kind: str
    frame_shape: tuple[int, ...]
    stack: int
    num_actions: int
    dueling: bool = True
    hidden_units: int = 0
    layer_norm: bool = False
    scale: float = 1.0
    centred: bool = False
    own: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if min((self.stack, self.num_actions, *self.frame_shape), default=0) < 1:
            raise ValueError(f"a network needs a frame shape, a stack and actions of at least 1, not {self}")

    def resolved_kind(self) -> str:
        """``kind`` with ``Auto`` decided by the frame shape. Raises NetworkProblem where no such network sees these frames."""
        return resolved_network("ApeXDQN", self.kind, self.frame_shape)


@dataclass(frozen=True, slots=True)
class _Geometry:
    """``convolutions``: (out channels, kernel, stride). ``dense``: number of hidden dense layers. ``hidden``: their width."""

    convolutions: convolutions.Layers
    dense: int
    hidden: int
    own_streams: bool


# Nature: dueling gives value and advantage a dense layer each, as in Wang et al. 2016. All others share one.
_GEOMETRY = {
    "Nature": _Geometry(convolutions.NATURE, dense=1, hidden=512, own_streams=True),
    "Compact": _Geometry(convolutions.OVERLAPPING_COMPACT, dense=1, hidden=128, own_streams=False),
    "Small": _Geometry(convolutions.SMALL, dense=1, hidden=128, own_streams=False),
    "MLP": _Geometry(convolutions.NONE, dense=2, hidden=128, own_streams=False),
}
_BEHIND_OWN = _Geometry(convolutions.NONE, dense=1, hidden=512, own_streams=True)
"""What stands behind layers of the user's own."""


class QNetwork(FrameNetwork):
    """``forward(observation uint8|float32 [B, S, *F]) -> float32 [B, A]``; precision and layout as in ``FrameNetwork``."""

    def __init__(self, config: QNetworkConfig) -> None:
        super().__init__(config.frame_shape, config.scale, centred=config.centred, stack=config.stack)
        self.config = config
        self.kind = config.resolved_kind()
        geometry = _GEOMETRY.get(self.kind, _BEHIND_OWN)
        streams = 2 if config.dueling and geometry.own_streams else 1
        hidden = config.hidden_units or geometry.hidden
        if ":" in self.kind:
            self.convolutions, width = own_layers(self.kind, config.own, config.stack, config.frame_shape)
        else:
            self.convolutions, width = convolution_layers(
                config.stack, config.frame_shape, geometry.convolutions, layer_norm=config.layer_norm
            )
        self.dense = dense_layers(width, hidden, geometry.dense, streams=streams, layer_norm=config.layer_norm)
        self.advantage = nn.Linear(hidden, config.num_actions)
        self.value = nn.Linear(hidden, 1) if config.dueling else None
        self.streams = streams

    def forward(self, observation: Tensor) -> Tensor:
        hidden = self.features(observation)
        for_advantage, for_value = hidden.chunk(2, dim=1) if self.streams == 2 else (hidden, hidden)
        advantage: Tensor = self.advantage(for_advantage)
        if self.value is None:
            return advantage
        return dueling(self.value(for_value), advantage)


def dueling(value: Tensor, advantage: Tensor) -> Tensor:
    """``Q = V + A - mean_a A`` (Wang et al. 2016, eq. 9). value float32[B, 1], advantage float32[B, A] -> float32[B, A]."""
    return value + advantage - advantage.mean(dim=1, keepdim=True)

"""Q-networks: Nature, Compact, Small and MLP. Which of them sees frames of which shape is in ``rljob.api.networks``.

A network maps stacked observations to action values, ``[B, S, *F] -> float32[B, A]``. It owns what must be identical wherever
the policy runs (actor, learner, evaluator, checkpoint): the normalisation of raw frames, the dueling combination, and the
precision in which the trunk is computed. Parameters are always float32; bf16 is a way to compute, never a way to store.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from rljob.algorithms import layers
from rljob.algorithms.batches import Observation
from rljob.algorithms.own_network import encoded
from rljob.algorithms.trunk import FrameNetwork, convolution_layers, dense_layers
from rljob.api import EnvironmentParameters
from rljob.api.networks import OF_TRANSITIONS
from rljob.envs.spec import EnvironmentSpec


@dataclass(frozen=True, slots=True)
class QNetworkConfig:
    """What a Q-network is built from.

    ``kind``: Nature, Compact, Small or MLP, or Auto, which chooses for each picture by its shape. ``env_params``: how it is seen.
    ``hidden_units``: width of the dense layers, 0 for the kind's own (Nature 512, all others 128).
    ``layer_norm``: normalise before every ReLU (GroupNorm with one group after convolutions, LayerNorm after dense layers).
    ``own``: parameters of a network of the user's own, whose name ``kind`` then is.
    """

    kind: str
    spec: EnvironmentSpec
    env_params: EnvironmentParameters = field(default_factory=EnvironmentParameters)
    dueling: bool = True
    hidden_units: int = 0
    layer_norm: bool = False
    own: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Geometry:
    """``dense``: number of hidden dense layers. ``hidden``: their width."""

    dense: int
    hidden: int
    own_streams: bool


# Nature: dueling gives value and advantage a dense layer each, as in Wang et al. 2016. All others share one.
_GEOMETRY = {
    "Nature": _Geometry(dense=1, hidden=512, own_streams=True),
    "Compact": _Geometry(dense=1, hidden=128, own_streams=False),
    "Small": _Geometry(dense=1, hidden=128, own_streams=False),
    "MLP": _Geometry(dense=2, hidden=128, own_streams=False),
}
_BEHIND_OWN = _Geometry(dense=1, hidden=512, own_streams=True)
"""What stands behind layers of the user's own."""


class QNetwork(FrameNetwork):
    """``forward(observation uint8|float32 [B, S, *F]) -> float32 [B, K]``; precision and layout as in ``FrameNetwork``.

    K is the number of actions, or of the values of all choices; each choice has an advantage of its own and the value is shared.
    Raises NetworkProblem where no such network sees these observations.
    """

    def __init__(self, config: QNetworkConfig) -> None:
        super().__init__(config.spec, config.env_params)
        self.config = config
        shape = config.spec.seen_shapes[0]
        self.kind, width = encoded(self, config.kind, config.own, shape, OF_TRANSITIONS, self._layers)
        geometry = _GEOMETRY.get(self.kind, _BEHIND_OWN)
        streams = 2 if config.dueling and geometry.own_streams else 1
        hidden = config.hidden_units or geometry.hidden
        self.dense = dense_layers(width, hidden, geometry.dense, streams=streams, layer_norm=config.layer_norm)
        self.advantage = nn.Linear(hidden, config.spec.num_actions)
        self.value = nn.Linear(hidden, 1) if config.dueling else None
        self.streams = streams

    def forward(self, observation: Observation) -> Tensor:
        hidden = self.features(observation)
        for_advantage, for_value = hidden.chunk(2, dim=1) if self.streams == 2 else (hidden, hidden)
        values: Tensor = self.advantage(for_advantage)
        if self.value is not None:
            value: Tensor = self.value(for_value)
            streams = [dueling(value, part) for part in self.choices.parts(values)]
            values = streams[0] if len(streams) == 1 else torch.cat(streams, dim=1)
        return self.masked(values, observation)

    def _layers(self, kind: str, stack: int, shape: tuple[int, ...]) -> tuple[nn.Sequential, int]:
        return convolution_layers(stack, shape, layers.OF_TRANSITIONS[kind], layer_norm=self.config.layer_norm)


def dueling(value: Tensor, advantage: Tensor) -> Tensor:
    """``Q = V + A - mean_a A`` (Wang et al. 2016, eq. 9). value float32[B, 1], advantage float32[B, A] -> float32[B, A]."""
    return value + advantage - advantage.mean(dim=1, keepdim=True)

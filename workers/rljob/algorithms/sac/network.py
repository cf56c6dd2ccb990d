"""The networks of SAC: a policy whose Gaussian follows from what is observed, and, for the learner, critics beside it.

Shapes: B observations, C continuous numbers of an action, S frame stack, F frame shape.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log
from typing import Any, Final, Self

import torch
from torch import Tensor, nn

from rljob.algorithms import layers
from rljob.algorithms.batches import Observation
from rljob.algorithms.compute import Compute
from rljob.algorithms.distributions import LARGEST_LOG_STD, SMALLEST_LOG_STD, tanh_gaussian_log_prob
from rljob.algorithms.layers import DenseEnsemble
from rljob.algorithms.own_network import encoded
from rljob.algorithms.trunk import FrameNetwork, convolution_layers, dense_layers, row_width
from rljob.api import EnvironmentParameters
from rljob.api.networks import OF_TRANSITIONS
from rljob.envs.spec import EnvironmentSpec

CRITICS: Final = 2
_DEPTH: Final = 2


@dataclass(frozen=True, slots=True)
class SACConfig:
    """What the networks are built from: ``kind`` of network, or the name of one of the user's own with its parameters ``own``;
    ``hidden`` units of each of two dense layers, ``layer_norm`` before their ReLU. ``normalize``, observations, and
    ``normalize_returns``: see ``FrameNetwork``."""

    kind: str
    spec: EnvironmentSpec
    env_params: EnvironmentParameters = field(default_factory=EnvironmentParameters)
    hidden: int = 256
    layer_norm: bool = False
    normalize: bool = False
    normalize_returns: bool = False
    own: Mapping[str, Any] = field(default_factory=dict)

    def encoded(self, network: FrameNetwork) -> int:
        """Give ``network`` its layers for pictures; how many features there are of an observation."""
        return encoded(network, self.kind, self.own, self.spec.seen_shapes[0], OF_TRANSITIONS, self._layers)[1]

    def _layers(self, kind: str, stack: int, shape: tuple[int, ...]) -> tuple[nn.Sequential, int]:
        return convolution_layers(stack, shape, layers.OF_TRANSITIONS[kind], layer_norm=self.layer_norm)


class SquashedGaussianPolicy(FrameNetwork):
    """``forward(observation [B, S, *F]) -> float32 [B, 2 * C]``: means, and logarithms of deviations from ``SMALLEST_LOG_STD`` to
    ``LARGEST_LOG_STD``, of numbers whose tanh is the action. What acts, and all that is published."""

    def __init__(self, config: SACConfig) -> None:
        super().__init__(config.spec, config.env_params, normalize_observations=config.normalize)
        self.config = config
        self.dense = dense_layers(config.encoded(self), config.hidden, _DEPTH, layer_norm=config.layer_norm)
        self.head = nn.Linear(config.hidden, 2 * config.spec.controls)

    def forward(self, observation: Observation) -> Tensor:
        mean, spread = self.head(self.features(observation)).chunk(2, dim=1)
        half = 0.5 * (LARGEST_LOG_STD - SMALLEST_LOG_STD)  # clamped, it would have no gradient at its ends
        return torch.cat([mean, SMALLEST_LOG_STD + half * (torch.tanh(spread) + 1.0)], dim=1)

    def sample(self, observation: Observation, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions in [-1, 1], float32 [B, C], by standard normal ``noise`` [B, C], and their log-densities [B]; both with
        gradients by the policy."""
        mean, log_std = self(observation).chunk(2, dim=1)
        drawn = mean + log_std.exp() * noise
        return torch.tanh(drawn), tanh_gaussian_log_prob(mean, log_std, drawn)


class SACNetwork(FrameNetwork):
    """All that learns: ``policy``, critics with an encoder of their own, and the logarithm of the temperature.

    Leaves of the role critic are seen by the critics alone. ``temperature``: a number that stays, or None for one that is learned
    from ``initial_temperature`` on.
    """

    def __init__(self, config: SACConfig, temperature: float | None, initial_temperature: float) -> None:
        super().__init__(
            config.spec,
            config.env_params,
            normalize_observations=config.normalize,
            normalize_returns=config.normalize_returns,
        )
        self.policy = SquashedGaussianPolicy(config)
        width = config.encoded(self) + row_width(self.critic_leaves) + config.spec.controls
        self.critics = DenseEnsemble(CRITICS, width, config.hidden, _DEPTH, layer_norm=config.layer_norm)
        self.fixed_temperature = temperature
        learned = torch.full((), log(initial_temperature)) if temperature is None else None
        self.log_temperature = nn.Parameter(learned) if learned is not None else None

    @property
    def temperature(self) -> Tensor:
        """What a nat of entropy is worth in units of the critics' values, a scalar without a gradient."""
        if self.log_temperature is not None:
            return self.log_temperature.detach().exp()
        return self.in_units_of_returns(torch.tensor(self.fixed_temperature, device=self.mean.device))

    def state(self, observation: Observation) -> Tensor:
        """What the critics see of observations, float32 [B, width]."""
        seen = self.seen(observation).float()
        return torch.cat([seen, self.critic_row(observation)], dim=1) if self.critic_leaves else seen

    def action_values(self, state: Tensor, action: Tensor, *, detached: bool = False) -> Tensor:
        """What each critic expects of ``action`` [B, C] in [-1, 1], float32 [2, B], in units of ``return_scale``. ``detached``:
        no gradient by the critics."""
        found: Tensor = self.critics(torch.cat([state, action], dim=1), detached=detached, half=self.plan.half)
        return found

    def critic_parameters(self) -> list[Tensor]:
        """Those of the critics and of what they see with."""
        others = {id(each) for each in self.policy.parameters()} | {id(self.log_temperature)}
        return [each for each in self.parameters() if id(each) not in others]

    def compute(self, plan: Compute) -> Self:
        self.policy.compute(plan)
        return super().compute(plan)

    def centre(self, mean: Tensor) -> None:
        super().centre(mean)
        self.policy.centre(mean)

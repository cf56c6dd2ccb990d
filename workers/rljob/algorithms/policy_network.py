"""Policy-and-value networks for actor-critic learning: Nature, Deep (residual), Compact, Small and MLP, with an optional LSTM.

Which of them sees frames of which shape is in ``rljob.api.networks``.

One pass gives what an actor needs (logits and the value of a state), another what a learner needs of whole unrolls. A recurrent
state is one tensor, float32 [N, 2, H] (hidden and cell), so that it travels as one column.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from math import sqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rljob.algorithms import layers
from rljob.algorithms.batches import Observation
from rljob.algorithms.distributions import ActionDistribution, bounded_log_std
from rljob.algorithms.own_network import encoded
from rljob.algorithms.trunk import (
    FrameNetwork,
    convolution_layers,
    dense_layers,
    row_width,
    seen_by_convolutions,
)
from rljob.api import EnvironmentParameters
from rljob.api.networks import OF_UNROLLS
from rljob.envs.spec import EnvironmentSpec
from rljob.observation import arrays_of, each

_CONVOLUTIONS = {
    "Nature": layers.NATURE,
    "Compact": layers.TILED_COMPACT,
    "Small": layers.SMALL,
    "MLP": layers.NONE,
}
_DEEP_CHANNELS = (16, 32, 32)  # the residual network of Espeholt et al. 2018, figure 3 right
_MLP_DEPTH = 2


class PolicyOutput(NamedTuple):
    """``logits`` float32 [N, K], with means and logarithms of deviations behind them where actions have continuous numbers
    (``ActionDistribution``), ``value`` float32 [N], ``state`` float32 [N, 2, H] after this observation (H 0: no memory)."""

    logits: Tensor
    value: Tensor
    state: Tensor


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """What a policy network is built from.

    ``kind`` Nature, Deep, Compact, Small or MLP, or Auto, which chooses for each picture by its shape; ``hidden`` the width of
    its dense layer(s); ``lstm`` the units of an LSTM behind them, 0 for none. ``orthogonal``: orthogonal weights (gain sqrt 2,
    policy head 0.01, value head 1) and zero biases. ``tanh``: in the place of ReLU behind dense layers; None: of an MLP.
    ``separate_critic``: dense layers of its own for the value (without a memory); None: for an MLP. ``log_std_init``: of
    continuous numbers. ``env_params``: how an observation is seen. ``own``: parameters of a network of the user's own, whose name
    ``kind`` then is. ``normalize_observations``, ``normalize_returns``: see ``FrameNetwork``.
    """

    kind: str
    spec: EnvironmentSpec
    env_params: EnvironmentParameters = field(default_factory=EnvironmentParameters)
    hidden: int = 256
    lstm: int = 0
    layer_norm: bool = False
    orthogonal: bool = False
    tanh: bool | None = False
    separate_critic: bool | None = False
    log_std_init: float = 0.0
    own: Mapping[str, Any] = field(default_factory=dict)
    normalize_observations: bool = False
    normalize_returns: bool = False

    def __post_init__(self) -> None:
        if self.hidden < 1 or self.lstm < 0:
            raise ValueError(f"a network needs units, at least 1, not {self}")


class PolicyNetwork(FrameNetwork):
    """``forward`` acts on one observation of each of N environments, ``unroll`` judges unrolls of B streams. ``distribution``:
    the policy that its numbers are.

    Means of continuous numbers come from the policy's head, their deviations are weights that no observation changes.
    Leaves of the role critic are seen by the value alone, through a dense layer of their own.
    Raises NetworkProblem where no such network sees these observations.
    """

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__(
            config.spec,
            config.env_params,
            normalize_observations=config.normalize_observations,
            normalize_returns=config.normalize_returns,
        )
        self.config = config
        shape = config.spec.seen_shapes[0]
        self.kind, width = encoded(self, config.kind, config.own, shape, OF_UNROLLS, self._layers)
        mlp, separate = self.kind == "MLP", config.separate_critic
        dense = partial(
            dense_layers,
            width,
            config.hidden,
            _MLP_DEPTH if mlp else 1,
            layer_norm=config.layer_norm,
            tanh=mlp if config.tanh is None else config.tanh,
        )
        self.dense = dense()
        self.critic_dense = dense() if separate or (separate is None and mlp and not config.lstm) else None
        self.memory = nn.LSTMCell(config.hidden, config.lstm) if config.lstm else None
        features = config.lstm or config.hidden
        self.distribution = ActionDistribution(config.spec.action_sizes, config.spec.controls)
        self.policy = nn.Linear(features, config.spec.num_actions + config.spec.controls)
        if config.spec.controls:
            self.log_std = nn.Parameter(torch.full((config.spec.controls,), config.log_std_init))
        privileged = row_width(self.critic_leaves)
        self.critic = dense_layers(privileged, config.hidden, 1) if privileged else None
        self.value = nn.Linear(features + (config.hidden if privileged else 0), 1)
        if config.orthogonal:
            self._initialise_orthogonally()

    def initial_state(self, count: int) -> Tensor:
        """The state of ``count`` episodes that begin: zeros [count, 2, H]."""
        return torch.zeros(count, 2, self.config.lstm)

    def forward(self, observation: Observation, state: Tensor | None = None) -> PolicyOutput:
        """One step: observation uint8|float32 [N, S, *F]; ``state`` may be left out where episodes begin."""
        seen = self.seen(observation)
        hidden = self.computed(self.dense, seen)
        if state is None:
            state = self.initial_state(len(hidden)).to(hidden.device)
        if self.memory is not None:
            hidden, state = self._remember(hidden, state)
        logits = self._policy_numbers(self.policy(hidden), observation)
        judged = hidden if self.critic_dense is None else self.computed(self.critic_dense, seen)
        return PolicyOutput(logits, self._value(judged, observation).squeeze(1), state)

    def unroll(self, observation: Observation, state: Tensor, ended: Tensor) -> tuple[Tensor, Tensor]:
        """Whole unrolls: observation [B, T + 1, S, *F], ``state`` [B, 2, H] before the first, ``ended`` uint8 [T, B]: other than
        0 where an episode ended, behind which the memory begins anew. Returns (logits [T, B, K], values [T + 1, B]). Raises
        TypeError for a discount in its place.
        """
        if ended.is_floating_point():
            raise TypeError(f"unroll takes where episodes ended, batch.ended, a tensor of uint8; got {ended.dtype}")
        batch, length = arrays_of(observation)[0].shape[:2]
        flat = each(lambda of: of.flatten(0, 1), observation)
        seen = self.seen(flat)
        hidden = self.computed(self.dense, seen).view(batch, length, -1).transpose(0, 1)
        if self.memory is not None:
            outputs = []
            for t in range(length):
                if t > 0:
                    state = state * (ended[t - 1] == 0).to(state.dtype)[:, None, None]
                output, state = self._remember(hidden[t], state)
                outputs.append(output)
            hidden = torch.stack(outputs)
        acted_on = observation if self.mask is None else each(lambda of: of[:, :-1].transpose(0, 1), observation)
        logits = self._policy_numbers(self.policy(hidden[:-1]), acted_on)
        if self.critic_dense is not None:
            hidden = self.computed(self.critic_dense, seen).view(batch, length, -1).transpose(0, 1)
        return logits, self._value(hidden.transpose(0, 1).flatten(0, 1), flat).view(batch, length).transpose(0, 1)

    def _policy_numbers(self, head: Tensor, observation: Observation) -> Tensor:
        """The numbers of the policy, from its head's and the mask in ``observation``."""
        if not self.distribution.controls:
            return self.masked(head, observation)
        logits, mean = torch.split(head, [sum(self.distribution.sizes), self.distribution.controls], dim=-1)
        log_std = bounded_log_std(self.log_std).expand_as(mean)
        return torch.cat([self.masked(logits, observation), mean, log_std], dim=-1)

    def _value(self, hidden: Tensor, observation: Observation) -> Tensor:
        if self.critic is not None:
            hidden = torch.cat([hidden, self.critic(self.critic_row(observation))], dim=1)
        return self.in_reward_units(self.value(hidden))

    def _layers(self, kind: str, stack: int, shape: tuple[int, ...]) -> tuple[nn.Sequential, int]:
        if kind == "Deep":
            return _deep(stack, shape, layer_norm=self.config.layer_norm)
        return convolution_layers(stack, shape, _CONVOLUTIONS[kind], layer_norm=self.config.layer_norm)

    def _remember(self, hidden: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        assert self.memory is not None, "only a recurrent network remembers"
        output, cell = self.memory(hidden, (state[:, 0], state[:, 1]))
        return output, torch.stack([output, cell], dim=1)

    def _initialise_orthogonally(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.orthogonal_(module.weight, sqrt(2.0))
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]
        nn.init.orthogonal_(self.policy.weight, 0.01)
        nn.init.orthogonal_(self.value.weight, 1.0)


class _Residual(nn.Module):
    """Two 3x3 convolutions, each behind a ReLU, added to their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        inner: Tensor = self.second(nn.functional.relu(self.first(nn.functional.relu(x))))
        return x + inner


def _deep(stack: int, shape: tuple[int, ...], *, layer_norm: bool) -> tuple[nn.Sequential, int]:
    """Three times: a convolution, a pooling of stride 2, two residual blocks. ``layer_norm`` normalises after the pooling."""
    layers: list[nn.Module] = []
    channels, height, width = seen_by_convolutions(stack, shape)
    for out in _DEEP_CHANNELS:
        layers += [nn.Conv2d(channels, out, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1)]
        if layer_norm:
            layers.append(nn.GroupNorm(1, out))
        layers += [_Residual(out), _Residual(out)]
        channels, height, width = out, (height + 1) // 2, (width + 1) // 2
    return nn.Sequential(*layers, nn.ReLU()), channels * height * width

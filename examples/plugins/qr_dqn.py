"""Quantile regression DQN (Dabney et al. 2018, "Distributional reinforcement learning with quantile regression"), as a plug-in.

    rljob run cartpole-qr-dqn
    rljob explain examples/plugins/qr_dqn.py:QRDQN

The network gives N quantiles of the return of each action instead of its mean. Defaults are the paper's; what a job wants
differently stands in its manifest. Prioritized replay and n-step returns are those of every algorithm that learns from
transitions: ``spec.replay`` and ``nStep``.

Shapes: B batch, A actions, N quantiles, S frame stack, F frame shape.
"""

from __future__ import annotations

from typing import Annotated

import torch
from rljob.plugins import (
    ActionValueAlgorithm,
    ActionValueParameterSet,
    EnvironmentParameters,
    EnvironmentSpec,
    FrameNetwork,
    Integer,
    LossResult,
    Observation,
    Real,
    TransitionBatch,
    convolution_layers,
    dense_layers,
)
from torch import Tensor, nn

_NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))


class QRDQNParameters(ActionValueParameterSet):
    """Hyper-parameters of quantile regression DQN; the defaults are those that the paper used on Atari games."""

    quantiles: Annotated[int, Integer(2, 1000)] = 200
    """Quantiles of the return that are learned for each action."""
    kappa: Annotated[float, Real(0, 1000)] = 1.0
    """Where the quantile Huber loss becomes linear; 0 is the plain quantile loss (QR-DQN-0)."""
    hidden_units: Annotated[int, Integer(1, 16_384)] = 512
    """Width of the hidden layer(s)."""
    batch_size: Annotated[int, Integer(1, 65_536)] = 32
    """Transitions a learner update is computed from."""
    learning_rate: Annotated[float, Real(0, 1, above=True)] = 5e-5
    """Step size of Adam at the start."""
    optimizer_epsilon: Annotated[float, Real(0, 1, above=True)] = 0.01 / 32
    """The number that keeps Adam's denominator from zero."""
    gradient_clip_norm: Annotated[float, Real(0)] = 0.0
    """Largest gradient norm; 0 does not clip."""
    target_update_interval: Annotated[int, Integer(0)] = 10_000
    """Updates between copies of the online network to the target network."""
    epsilon_base: Annotated[float, Real(0, 1)] = 0.01
    """Environment i of N explores with base^(1 + exponent * i / (N - 1))."""
    epsilon_exponent: Annotated[float, Real(0, 100)] = 0.0
    """See epsilonBase; 0 gives every environment epsilonBase."""
    evaluation_epsilon: Annotated[float, Real(0, 1)] = 0.001
    """Share of random actions while a policy is judged."""


class QuantileNetwork(FrameNetwork):
    """``forward(observation uint8|float32 [B, S, *F]) -> float32 [B, A, N]``; images by the convolutions of Mnih et al. 2015."""

    def __init__(
        self, spec: EnvironmentSpec, quantiles: int, hidden_units: int, env_params: EnvironmentParameters
    ) -> None:
        super().__init__(spec, env_params)
        width = self.encode(lambda stack, shape: convolution_layers(stack, shape, _NATURE))
        depth = 1 if self.pictures else 2
        self.dense = dense_layers(width, hidden_units, depth)
        self.head = nn.Linear(hidden_units, spec.num_actions * quantiles)
        self.quantiles = quantiles

    def forward(self, observation: Observation) -> Tensor:
        return self.head(self.features(observation)).unflatten(1, (-1, self.quantiles))


class QRDQN(ActionValueAlgorithm[QRDQNParameters, QuantileNetwork]):
    """Acts by the mean of an action's quantiles; learns all of them."""

    name = "QR-DQN"
    takes = frozenset({"masks"})
    parameters = QRDQNParameters
    metrics = ("q_taken", "quantile_spread")

    def build(
        self, spec: EnvironmentSpec, params: QRDQNParameters, env_params: EnvironmentParameters
    ) -> QuantileNetwork:
        return QuantileNetwork(spec, params.quantiles, params.hidden_units, env_params)

    def action_values(self, net: QuantileNetwork, observation: Observation) -> Tensor:
        return net.masked(net(observation).mean(dim=2), observation)

    def loss(
        self, params: QRDQNParameters, online: QuantileNetwork, target: QuantileNetwork, batch: TransitionBatch
    ) -> LossResult:
        """Quantile Huber loss, summed over the predicted quantiles and averaged over those of the target (equation 10)."""
        taken = _of_action(online(batch.observation), batch.action)
        with torch.no_grad():
            ahead = target(batch.next_observation)
            best = _of_action(ahead, target.masked(ahead.mean(dim=2), batch.next_observation).argmax(dim=1))
            wanted = batch.n_step_return.unsqueeze(1) + batch.discount.unsqueeze(1) * best
        error = wanted.unsqueeze(1) - taken.unsqueeze(2)  # [B, predicted, wanted]
        size = params.quantiles
        middle = (torch.arange(size, device=error.device, dtype=error.dtype) + 0.5).div(size).view(1, size, 1)
        asymmetry = (middle - (error.detach() < 0).to(error.dtype)).abs()
        if params.kappa > 0.0:
            each = nn.functional.huber_loss(error, torch.zeros_like(error), reduction="none", delta=params.kappa)
            each = each / params.kappa
        else:
            each = error.abs()
        losses = (asymmetry * each).sum(dim=1).mean(dim=1)
        mean = taken.detach().mean(dim=1)
        metrics = {"q_taken": mean.mean(), "quantile_spread": taken.detach().std(dim=1).mean()}
        return LossResult((batch.weight * losses).mean(), metrics, td_abs=(wanted.mean(dim=1) - mean).abs())


def _of_action(quantiles: Tensor, action: Tensor) -> Tensor:
    """The quantiles [B, N] of one action [B] each, out of [B, A, N]."""
    index = action.view(-1, 1, 1).expand(-1, 1, quantiles.shape[2])
    return quantiles.gather(1, index).squeeze(1)

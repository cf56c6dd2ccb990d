"""TD3 (Fujimoto et al. 2018, arXiv 1802.09477): two critics, a policy without chance of its own, noise on the targets' actions.

    rljob run td3-pendulum

Beside the paper one thing is missing: the targets follow at every update, and not at every second one as the policy does.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Annotated, Any

import torch
from rljob.plugins import (
    DenseEnsemble,
    EnvironmentParameters,
    EnvironmentSpec,
    FrameNetwork,
    GaussianAlgorithm,
    Integer,
    LossResult,
    Observation,
    ParameterGroup,
    Real,
    TransitionBatch,
    TransitionParameterSet,
    convolution_layers,
    dense_layers,
)
from torch import Tensor, nn


class TD3Parameters(TransitionParameterSet):
    """What TD3 is written with in its paper."""

    learning_rate: Annotated[float, Real(0, 1, above=True)] = 1e-3
    """Step size of the critics and of the policy."""
    policy_delay: Annotated[int, Integer(1, 1000)] = 2
    """The policy moves at every such update alone."""
    gradient_clip_norm: Annotated[float, Real(0)] = 0.0
    """Largest gradient norm of critics and policy each; 0 does not clip."""
    target_update_tau: Annotated[float, Real(0, 1)] = 0.005
    """Share that the target networks take over at each update."""
    chunk_length: Annotated[int, Integer(1, 1000)] = 10
    """Steps that an actor sends at once."""
    hidden_units: Annotated[int, Integer(1, 16_384)] = 256
    """Width of the two hidden layers of the policy, and of each critic's."""
    exploration_noise: Annotated[float, Real(0, 1, above=True)] = 0.1
    """Deviation of an actor's actions, where a space reaches from -1 to 1."""
    target_noise: Annotated[float, Real(0, 1)] = 0.2
    """Deviation of the actions that the critics' targets are computed for."""
    largest_target_noise: Annotated[float, Real(0, 1)] = 0.5
    """It is cut off there."""


class Policy(FrameNetwork):
    """What acts: means between -1 and 1, and the logarithm of the same deviation for all."""

    def __init__(self, spec: EnvironmentSpec, env_params: EnvironmentParameters, params: TD3Parameters) -> None:
        super().__init__(spec, env_params)
        self.dense = dense_layers(self.encode(_no_convolutions), params.hidden_units, 2)
        self.head = nn.Linear(params.hidden_units, spec.controls)
        self.log_std = log(params.exploration_noise)

    def forward(self, observation: Observation) -> Tensor:
        mean = torch.tanh(self.head(self.features(observation)))
        return torch.cat([mean, torch.full_like(mean, self.log_std)], dim=1)

    def action(self, observation: Observation) -> Tensor:
        return self(observation).chunk(2, dim=1)[0]


class Learner(FrameNetwork):
    """All that learns: the policy, and two critics of an observation and an action."""

    def __init__(self, spec: EnvironmentSpec, env_params: EnvironmentParameters, params: TD3Parameters) -> None:
        super().__init__(spec, env_params)
        self.policy = Policy(spec, env_params, params)
        width = self.encode(_no_convolutions) + spec.controls
        self.critics = DenseEnsemble(2, width, params.hidden_units, 2)

    def action_values(self, observation: Observation, action: Tensor, *, detached: bool = False) -> Tensor:
        seen = torch.cat([self.seen(observation), action], dim=1)
        return self.critics(seen, detached=detached)


class TD3(GaussianAlgorithm[TD3Parameters, Any]):
    parameters = TD3Parameters
    metrics = ("q_taken", "critic_loss", "policy_loss")
    acting = "policy"

    def build(self, spec: EnvironmentSpec, params: TD3Parameters, env_params: EnvironmentParameters) -> Policy:
        return Policy(spec, env_params, params)

    def build_learner(self, spec: EnvironmentSpec, params: TD3Parameters, env_params: EnvironmentParameters) -> Learner:
        return Learner(spec, env_params, params)

    def groups(self, params: TD3Parameters, online: Learner) -> Sequence[ParameterGroup]:
        clip = params.gradient_clip_norm
        policy, critics = tuple(online.policy.parameters()), tuple(online.critics.parameters())
        return ParameterGroup(critics, clip_norm=clip), ParameterGroup(
            policy, clip_norm=clip, every=params.policy_delay
        )

    def noise(self, params: TD3Parameters, online: Learner) -> tuple[int, ...]:
        return (online.policy.head.out_features,)

    def loss(self, params: TD3Parameters, online: Learner, target: Learner, batch: TransitionBatch) -> LossResult:
        with torch.no_grad():
            bound = params.largest_target_noise
            noise = (params.target_noise * batch.noise).clamp(-bound, bound)
            following = (target.policy.action(batch.next_observation) + noise).clamp(-1.0, 1.0)
            expected = target.action_values(batch.next_observation, following).amin(dim=0)
            wanted = batch.n_step_return + batch.discount * expected
        taken = online.action_values(batch.observation, batch.control.clamp(-1.0, 1.0))
        error = wanted - taken
        critic_loss = (batch.weight * error.square().sum(dim=0)).mean()
        action = online.policy.action(batch.observation)
        policy_loss = -online.action_values(batch.observation, action, detached=True)[0].mean()
        means = {"q_taken": taken.mean(), "critic_loss": critic_loss, "policy_loss": policy_loss}
        metrics = {name: value.detach() for name, value in means.items()}
        return LossResult(critic_loss + policy_loss, metrics, td_abs=error.detach().abs().mean(dim=0))


def _no_convolutions(stack: int, shape: tuple[int, ...]) -> tuple[nn.Sequential, int]:
    return convolution_layers(stack, shape, ())

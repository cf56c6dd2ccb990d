"""SAC (Haarnoja et al. 2018, arXiv 1812.05905): two critics, a policy that is paid for its entropy, a learned temperature.

Read from top to bottom, this is the whole algorithm but for how it acts, which is in ``acting_rules``, and its networks, in
``network``. An update takes one step of each: the critics towards what the target critics and the present policy expect, the
policy up the smaller of two critics, the temperature towards the entropy that is asked for; all three from the same weights, as
they were before it. Pure functions on tensors of static shape; no sockets, no files, no clock.

What travels and is stored of an action is the number before the tanh: densities are those of actions in [-1, 1], whatever the
bounds of the environment.

Shapes: B batch, N environments, C continuous numbers of an action.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch

from rljob.algorithms.acting_rules import GaussianAlgorithm, unjudged
from rljob.algorithms.base import ParameterGroup
from rljob.algorithms.batches import LossResult, TransitionBatch
from rljob.algorithms.sac import DECLARED
from rljob.algorithms.sac.network import SACConfig, SACNetwork, SquashedGaussianPolicy
from rljob.algorithms.sac.parameters import SACParameters
from rljob.api import EnvironmentParameters
from rljob.choices import Choices, RandomNumbers
from rljob.envs.spec import EnvironmentSpec
from rljob.experience import Decision

_LARGEST_RANDOM: Final = 1.0 - 1e-6
"""The largest number of a random action: the tanh of a float32 is 1 from 9 on, which no number gives back."""


class SAC(GaussianAlgorithm[SACParameters, Any]):
    """What each method has to do is written in ``base`` and ``acting_rules``.

    ``q_taken``: mean of both critics for what was done. ``entropy``: of the policy, in nats, estimated from its draws.
    """

    name = "SAC"
    takes = DECLARED.takes
    parameters = SACParameters
    metrics = ("q_taken", "critic_loss", "policy_loss", "entropy", "temperature")
    acting = "policy"

    def build(
        self, spec: EnvironmentSpec, params: SACParameters, env_params: EnvironmentParameters
    ) -> SquashedGaussianPolicy:
        return SquashedGaussianPolicy(_config(spec, params, env_params))

    def build_learner(
        self, spec: EnvironmentSpec, params: SACParameters, env_params: EnvironmentParameters
    ) -> SACNetwork:
        return SACNetwork(_config(spec, params, env_params), params.temperature, params.initial_temperature)

    # ------------------------------------------------------------------------------------------------------------ acting

    def random_decision(self, num_envs: int, choices: Choices, generator: RandomNumbers) -> Decision:
        """Uniform between the bounds, as the number whose tanh that is."""
        uniform = super().random_decision(num_envs, choices, generator).control
        assert uniform is not None
        return unjudged(np.arctanh(_LARGEST_RANDOM * uniform))

    # ---------------------------------------------------------------------------------------------------------- learning

    def groups(self, params: SACParameters, online: SACNetwork) -> Sequence[ParameterGroup]:
        """Critics, policy and a learned temperature."""
        clip, rate = params.gradient_clip_norm, params.learning_rate
        found = [
            ParameterGroup(online.critic_parameters(), params.critic_learning_rate / rate, clip),
            ParameterGroup(list(online.policy.parameters()), 1.0, clip),
        ]
        if online.log_temperature is not None:
            found.append(ParameterGroup([online.log_temperature], params.temperature_learning_rate / rate, clip))
        return found

    def noise(self, params: SACParameters, online: SACNetwork) -> tuple[int, ...]:
        """For the action that follows, and for the one that the policy is judged by."""
        return 2, online.policy.config.spec.controls

    def loss(self, params: SACParameters, online: SACNetwork, target: SACNetwork, batch: TransitionBatch) -> LossResult:
        """Half the squared errors of both critics, plus what the policy loses, plus the temperature's; with ``normalize_returns``
        in units of the returns' deviation."""
        assert batch.noise is not None
        assert batch.control is not None
        temperature = online.temperature
        with torch.no_grad():
            following, log_density = online.policy.sample(batch.next_observation, batch.noise[:, 0])
            expected = target.action_values(target.state(batch.next_observation), following).amin(dim=0)
            reward = online.in_units_of_returns(batch.n_step_return)
            wanted = reward + batch.discount * (expected - temperature * log_density)
        state = online.state(batch.observation)
        taken = online.action_values(state, torch.tanh(batch.control))
        error = wanted - taken
        critic_loss = (batch.weight * 0.5 * error.square().sum(dim=0)).mean()

        action, log_density = online.policy.sample(batch.observation, batch.noise[:, 1])
        value = online.action_values(state.detach(), action, detached=True).amin(dim=0)
        policy_loss = (temperature * log_density - value).mean()
        total = critic_loss + policy_loss
        entropy = -log_density.detach()
        if online.log_temperature is not None:
            asked = params.target_entropy if params.target_entropy is not None else -float(action.shape[1])
            total = total + online.log_temperature * (entropy - asked).mean()
        metrics = {
            "q_taken": online.in_reward_units(taken),
            "critic_loss": critic_loss,
            "policy_loss": policy_loss,
            "entropy": entropy,
            "temperature": online.in_reward_units(temperature),
        }
        means = {name: number.detach().mean() for name, number in metrics.items()}
        return LossResult(total, means, td_abs=error.detach().abs().mean(dim=0))


def _config(spec: EnvironmentSpec, params: SACParameters, env_params: EnvironmentParameters) -> SACConfig:
    return SACConfig(
        str(params.network),
        spec,
        env_params,
        hidden=params.hidden_units,
        layer_norm=params.layer_norm,
        normalize=params.normalize_observations,
        normalize_returns=params.normalize_returns,
        own=params.network_parameters,
    )

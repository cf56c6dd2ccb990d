"""Acting by a policy with a value beside it: what IMPALA and PPO have in common, which differ in their losses.

Shapes: T steps of an unroll, B unrolls, M single steps, N environments, A numbers of the policy (``ActionDistribution``), H units
of memory.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rljob.algorithms.base import Game, Inference, UnrollAlgorithm
from rljob.algorithms.batches import Observation
from rljob.algorithms.distributions import ActionDistribution
from rljob.algorithms.policy_network import PolicyConfig, PolicyNetwork
from rljob.api import EnvironmentParameters, ImpalaParameters, PPOParameters
from rljob.choices import Choices, RandomNumbers
from rljob.envs.spec import EnvironmentSpec
from rljob.experience import Decision
from rljob.observation import each

P = TypeVar("P", bound=ImpalaParameters | PPOParameters)


class ActorCritic(UnrollAlgorithm[P, PolicyNetwork]):
    """What each method has to do is written in ``base``."""

    metrics = (
        "policy_loss",
        "value_loss",
        "entropy",
        "policy_kl",
        "clip_share",
        "log_std",
        "value",
        "explained_variance",
        "advantage_std",
    )

    def passes(self, params: P) -> int:
        return params.epochs

    def refresh_steps(self, params: P) -> int:
        return params.weights_refresh_steps

    def build(self, spec: EnvironmentSpec, params: P, env_params: EnvironmentParameters) -> PolicyNetwork:
        return PolicyNetwork(
            PolicyConfig(
                kind=str(params.network),
                spec=spec,
                env_params=env_params,
                hidden=params.hidden_units,
                lstm=self.memory_units(params),
                layer_norm=params.layer_norm,
                orthogonal=params.orthogonal_init,
                log_std_init=params.log_std_init,
                tanh=None if params.activation is None else params.activation == "Tanh",
                separate_critic=params.separate_critic,
                own=params.network_parameters,
                normalize_observations=params.normalize_observations,
                normalize_returns=params.normalize_returns,
            )
        )

    def memory_units(self, params: P) -> int:
        return params.lstm_units if params.recurrent == "LSTM" else 0

    def metrics_of(self, online: PolicyNetwork) -> tuple[str, ...]:
        """``log_std`` is that of continuous actions."""
        return tuple(name for name in self.metrics if name != "log_std" or online.distribution.controls)

    def means(
        self, policies: ActionDistribution, normalised: Tensor, metrics: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """``metrics`` of a batch, and ``log_std`` where there is one, as their means, detached."""
        log_std = {"log_std": policies.split(normalised)[2]} if policies.controls else {}
        return {name: each.detach().mean() for name, each in {**metrics, **log_std}.items()}

    # ------------------------------------------------------------------------------------------------------------ acting

    def output_size(self, params: P, num_actions: int) -> int:
        """The numbers of the policy, and the value of the state."""
        return num_actions + 1

    def infer(self, net: PolicyNetwork, observation: Observation, state: Tensor | NDArray[Any]) -> Inference:
        """The policy's numbers and the value for each observation, one tensor float32 [N, A + 1], and the memory afterwards."""
        with torch.inference_mode():
            logits, value, after = net(each(torch.as_tensor, observation), torch.as_tensor(state))
            return Inference(torch.cat([logits, value.unsqueeze(1)], dim=1), after)

    def decide(
        self,
        outputs: NDArray[np.float32],
        epsilon: NDArray[np.floating[Any]] | float,
        generator: RandomNumbers,
        choices: Choices,
    ) -> Decision:
        """Sample an action for each of N environments from its policy; ``epsilon`` is not used, the policy explores by itself.

        The generator advances by N * A numbers whatever the outcome, so that a run replays from its seed.
        """
        numbers, value = outputs[:, :-1], outputs[:, -1]
        logits, gaussians = choices.split(numbers)
        log_policy = choices.log_policy(logits)
        action = choices.sample(log_policy, generator.random(logits.shape))
        taken = choices.taken(log_policy, action).sum(axis=1)
        if gaussians is None:
            return Decision(action, taken.astype(np.float32), value)
        control = gaussians.sample(choices.draws(len(outputs), generator))
        return Decision(action, (taken + gaussians.log_prob(control)).astype(np.float32), value, control=control)

    def random_decision(self, num_envs: int, choices: Choices, generator: RandomNumbers) -> Decision:
        """What an actor without weights does: anything, which is a policy too; its values are not known.

        Continuous numbers are standard normal: the same whether the edge clips or squashes them, with a density that both can
        be learned from, and what a new network's policy does.
        """
        unknown = np.full(num_envs, np.nan, np.float32)
        action, taken = choices.uniform(num_envs, generator), choices.log_uniform(num_envs)
        if not choices.controls:
            return Decision(action, taken, unknown)
        gaussians = choices.standard(num_envs)
        control = gaussians.sample(choices.draws(num_envs, generator))
        return Decision(action, (taken + gaussians.log_prob(control)).astype(np.float32), unknown, control=control)

    def state_values(self, outputs: NDArray[np.float32], choices: Choices) -> NDArray[np.float32]:
        """V(s), float32 [N]."""
        return outputs[:, -1]

    def preferences(self, outputs: Tensor) -> Tensor:
        """The policy's numbers, without the value behind them."""
        return outputs[:, :-1]

    # -------------------------------------------------------------------------------------------------------- evaluation

    def evaluation_action(self, params: P, net: PolicyNetwork, observation: Observation, games: Sequence[Game]) -> Any:
        """Sampled from logits / evaluationTemperature and with deviations times it, or the most probable action where it is 0."""
        memory = net.config.lstm
        states = [np.zeros((2, memory), np.float32) if game.memory is None else game.memory for game in games]
        outputs, after = self.infer(net, observation, np.stack(states))
        for game, state in zip(games, after.cpu().numpy(), strict=True):
            game.memory = state
        # What is not allowed has no chance by its logit.
        choices = Choices(net.distribution.sizes, controls=net.distribution.controls)
        numbers, temperature = outputs[:, :-1].cpu().numpy(), params.evaluation_temperature
        logits, gaussians = choices.split(numbers)
        draws = np.stack([game.random.random(logits.shape[1]) for game in games])
        control = None
        if gaussians is not None:
            control = gaussians.sample(np.stack([choices.draws(1, game.random)[0] for game in games]), temperature)
        if temperature == 0.0:
            return choices.action(choices.best(logits), control)
        log_policy = choices.log_policy(logits.astype(np.float64) / temperature)
        return choices.action(choices.sample(log_policy, draws), control)

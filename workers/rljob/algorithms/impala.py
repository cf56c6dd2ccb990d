"""IMPALA (Espeholt et al. 2018): actors send unrolls, one learner corrects for the age of their policy; two losses.

``VTrace`` is the published one: policy gradient, value and entropy terms on V-trace targets, summed over time and batch.
``ClippedSurrogate`` learns from the same unrolls with several passes of minibatches, generalised advantages from the values that
the actors saw, and a clipped ratio (PPO's objective on asynchronous data; others call it APPO).
Either can carry a penalty on leaving the policy that acted (``policy_kl_cost``), which V-trace needs to make several passes.

Read from top to bottom, this is the whole algorithm: the network, how an actor acts, and how unrolls become a loss. Pure
functions on tensors of static shape; no sockets, no files, no clock.

Shapes: T steps of an unroll, B unrolls, N environments, S frame stack, F frame shape, A actions, H units of memory.

Ends of episodes: ``discount`` is gamma, and 0 where an episode ended, whichever way. A truncated episode would have gone on, so
its last reward gets ``gamma * final_value`` added, where ``final_value`` is what the acting policy expected of the final
observation. That keeps every unroll at T steps and costs the learner no forward pass; the estimate is as old as the policy that
acted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from rljob.algorithms.base import UnrollAlgorithm
from rljob.algorithms.batches import LossResult, Observation, UnrollBatch
from rljob.algorithms.decision import Game, Inference
from rljob.algorithms.minibatches import minibatches_of_steps, minibatches_of_unrolls
from rljob.algorithms.policy_network import PolicyConfig, PolicyNetwork
from rljob.algorithms.vtrace import Targets, gae, vtrace
from rljob.api import ImpalaParameters
from rljob.api.networks import TAKES
from rljob.choices import Choices, RandomNumbers
from rljob.experience import Decision
from rljob.observation import each

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rljob.api import EnvironmentParameters
    from rljob.envs.spec import EnvironmentSpec


class IMPALA(UnrollAlgorithm[ImpalaParameters, PolicyNetwork]):
    """What each method has to do is written in ``base``.

    ``policy_kl``: mean of ``ratio - 1 - log ratio`` between the policy that learns and the one that acted. ``clip_share``: share
    of steps whose ratio was clipped (by rho_clip, or by the surrogate).
    """

    name = "IMPALA"
    takes = TAKES["IMPALA"]
    parameters = ImpalaParameters
    metrics = ("policy_loss", "value_loss", "entropy", "policy_kl", "clip_share")

    def build(
        self, spec: EnvironmentSpec, params: ImpalaParameters, env_params: EnvironmentParameters
    ) -> PolicyNetwork:
        return PolicyNetwork(
            PolicyConfig(
                kind=str(params.network),
                spec=spec,
                env_params=env_params,
                hidden=params.hidden_units,
                lstm=self.memory_units(params),
                layer_norm=params.layer_norm,
                orthogonal=params.orthogonal_init,
                own=params.network_parameters,
            )
        )

    def memory_units(self, params: ImpalaParameters) -> int:
        return params.lstm_units if params.recurrent == "LSTM" else 0

    # ------------------------------------------------------------------------------------------------------------ acting

    def output_size(self, params: ImpalaParameters, num_actions: int) -> int:
        """Logits, and the value of the state."""
        return num_actions + 1

    def infer(self, net: PolicyNetwork, observation: Observation, state: Tensor | NDArray[Any]) -> Inference:
        """Logits and value of each observation as one tensor float32 [N, A + 1], and the memory afterwards."""
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
        """Sample an action for each of N environments from its logits; ``epsilon`` is not used, the policy explores by itself.

        The generator advances by N * A numbers whatever the outcome, so that a run replays from its seed.
        """
        logits, value = outputs[:, :-1], outputs[:, -1]
        log_policy = choices.log_policy(logits)
        action = choices.sample(log_policy, generator.random(logits.shape))
        return Decision(action, choices.taken(log_policy, action).sum(axis=1).astype(np.float32), value)

    def random_decision(self, num_envs: int, choices: Choices, generator: RandomNumbers) -> Decision:
        """What an actor without weights does: anything, which is a policy too; its values are not known."""
        unknown = np.full(num_envs, np.nan, np.float32)
        return Decision(choices.uniform(num_envs, generator), choices.log_uniform(num_envs), unknown)

    def state_values(self, outputs: NDArray[np.float32], choices: Choices) -> NDArray[np.float32]:
        """V(s), float32 [N]."""
        return outputs[:, -1]

    def preferences(self, outputs: Tensor) -> Tensor:
        """The logits, without the value behind them."""
        return outputs[:, :-1]

    # -------------------------------------------------------------------------------------------------------- evaluation

    def evaluation_action(
        self, params: ImpalaParameters, net: PolicyNetwork, observation: Observation, games: Sequence[Game]
    ) -> NDArray[np.int64]:
        """Sampled from logits / evaluationTemperature, or the best action where that is 0."""
        memory = net.config.lstm
        states = [np.zeros((2, memory), np.float32) if game.memory is None else game.memory for game in games]
        outputs, after = self.infer(net, observation, np.stack(states))
        for game, state in zip(games, after.cpu().numpy(), strict=True):
            game.memory = state
        logits = outputs[:, :-1].cpu().numpy()
        draws = np.stack([game.random.random(logits.shape[1]) for game in games])
        choices = Choices(net.choices.sizes)  # what is not allowed has no chance by its logit
        if params.evaluation_temperature == 0.0:
            return choices.best(logits)
        return choices.sample(choices.log_policy(logits.astype(np.float64) / params.evaluation_temperature), draws)

    # ---------------------------------------------------------------------------------------------------------- learning

    def target_divergence(self, params: ImpalaParameters) -> float:
        return params.target_policy_kl

    def passes(self, params: ImpalaParameters) -> int:
        return params.epochs

    def refresh_steps(self, params: ImpalaParameters) -> int:
        return params.weights_refresh_steps

    def minibatches(self, params: ImpalaParameters, batch: UnrollBatch) -> Iterator[UnrollBatch]:
        """``epochs`` passes over ``minibatches`` parts of equal size.

        Without a memory ``ClippedSurrogate`` shuffles single steps; in every other case a minibatch is made of whole unrolls, so
        that time stays together.
        """
        if params.loss == "ClippedSurrogate":
            found = surrogate_targets(batch, params)
            batch = batch._replace(advantage=found.advantage, value_target=found.value)
            if params.recurrent == "None":
                yield from minibatches_of_steps(batch, params.epochs, params.minibatches)
                return
        yield from minibatches_of_unrolls(batch, params.epochs, params.minibatches)

    def loss(self, params: ImpalaParameters, online: PolicyNetwork, batch: UnrollBatch) -> LossResult:
        """By ``params.loss``: policy + value_cost * half the squared error - entropy_cost * entropy
        + policy_kl_cost * half the squared log-ratio, summed over the steps or their mean, as ``params.loss_reduction`` says.

        Half the squared log-ratio is, in the mean over what the acting policy did, the two policies' divergence to second order.
        It grows with the logarithm of a ratio; ``policy_kl`` grows with the ratio, and a few rare actions would be most of it.
        """
        logits, values, following = _forward(online, batch)
        log_policy = online.choices.log_policy(logits)
        taken = online.choices.log_prob(log_policy, batch.action)
        log_ratio = taken - batch.log_prob
        entropy = online.choices.entropy(log_policy)
        if batch.advantage is None or batch.value_target is None:
            off_policy = log_ratio.detach() if params.correct_off_policy else torch.zeros_like(taken)
            found = vtrace(
                off_policy,
                batch.discount,
                batch.reward + params.gamma * batch.final_value,
                values.detach(),
                following.detach(),
                rho_clip=params.rho_clip,
                c_clip=params.c_clip,
                trace_decay=params.vtrace_lambda,
            )
            policy = -(taken * found.advantage)
            error = found.value - values
            clipped = found.ratio > params.rho_clip
        else:
            ratio = log_ratio.exp()
            bounded = ratio.clamp(1.0 - params.clip_range, 1.0 + params.clip_range)
            policy = -torch.minimum(ratio * batch.advantage, bounded * batch.advantage)
            error = batch.value_target - values
            clipped = (ratio.detach() - 1.0).abs() > params.clip_range
        critic = 0.5 * error.square()
        total = policy + params.value_cost * critic - params.entropy_cost * entropy
        if params.policy_kl_cost > 0.0:
            total = total + params.policy_kl_cost * 0.5 * log_ratio.square()
        reduced = total.sum() if params.loss_reduction == "Sum" else total.mean()
        gap = log_ratio.detach()
        metrics = {
            "policy_loss": policy,
            "value_loss": critic,
            "entropy": entropy,
            "policy_kl": gap.exp() - 1.0 - gap,
            "clip_share": clipped.float(),
        }
        means = {name: each.detach().mean() for name, each in metrics.items()}
        return LossResult(reduced, means, divergence=means["policy_kl"], summed=params.loss_reduction == "Sum")


def surrogate_targets(batch: UnrollBatch, params: ImpalaParameters) -> Targets:
    """Advantages (normalised over the batch if so wanted) and value targets [T, B] from the values the actors saw."""
    found = gae(
        batch.discount,
        batch.reward + params.gamma * batch.final_value,
        batch.value[:-1],
        batch.value[-1],
        trace_decay=params.gae_lambda,
    )
    if not params.normalize_advantages:
        return found
    advantage = found.advantage
    return found._replace(advantage=(advantage - advantage.mean()) / (advantage.std() + 1e-8))


def _forward(net: PolicyNetwork, batch: UnrollBatch) -> tuple[Tensor, Tensor, Tensor]:
    """(logits [T, B, A], values [T, B], the value behind the last step [B]); of single steps [M, A], [M] and nothing."""
    if batch.single_steps:
        output = net(batch.observation)
        return output.logits, output.value, output.value[:0]
    logits, values = net.unroll(batch.observation, batch.state, batch.discount)
    return logits, values[:-1], values[-1]

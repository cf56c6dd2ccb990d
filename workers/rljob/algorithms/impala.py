"""IMPALA (Espeholt et al. 2018): actors send unrolls, one learner corrects for the age of their policy; two losses.

``VTrace`` is the published one: policy gradient, value and entropy terms on V-trace targets, summed over time and batch.
``ClippedSurrogate`` learns from the same unrolls with several passes of minibatches, generalised advantages from the values that
the actors saw, and a clipped ratio (PPO's objective on asynchronous data; others call it APPO).
Either can carry a penalty on leaving the policy that acted (``policy_kl_cost``), which V-trace needs to make several passes.

Here is how unrolls become a loss; the network, and how an actor acts, is in ``actor_critic``. Pure functions on tensors of static
shape; no sockets, no files, no clock.

Shapes: T steps of an unroll, B unrolls.

Ends of episodes: ``discount`` is gamma, and 0 where an episode ended, whichever way. A truncated episode would have gone on, so
its last reward gets ``gamma * final_value`` added, where ``final_value`` is what the acting policy expected of the final
observation. That keeps every unroll at T steps and costs the learner no forward pass; the estimate is as old as the policy that
acted.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from rljob.algorithms.actor_critic import ActorCritic, forward
from rljob.algorithms.batches import LossResult, UnrollBatch
from rljob.algorithms.minibatches import minibatches_of_steps, minibatches_of_unrolls
from rljob.algorithms.policy_network import PolicyNetwork
from rljob.algorithms.vtrace import Targets, gae, vtrace
from rljob.api import ImpalaParameters
from rljob.api.networks import TAKES


class IMPALA(ActorCritic[ImpalaParameters]):
    """What each method has to do is written in ``base``.

    ``policy_kl``: mean of ``ratio - 1 - log ratio`` between the policy that learns and the one that acted. ``clip_share``: share
    of steps whose ratio was clipped (by rho_clip, or by the surrogate).
    """

    name = "IMPALA"
    takes = TAKES["IMPALA"]
    parameters = ImpalaParameters
    metrics = ("policy_loss", "value_loss", "entropy", "policy_kl", "clip_share")

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
        logits, values, following = forward(online, batch)
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

"""IMPALA (Espeholt et al. 2018): actors send unrolls, one learner corrects for the age of their policy with V-trace.

The loss is a policy gradient, the error of values and the entropy on V-trace targets, summed over time and batch. It can carry a
penalty on leaving the policy that acted (``policy_kl_cost``), which V-trace needs to make several passes.

Here is how unrolls become a loss; the network, and how an actor acts, is in ``actor_critic``. Pure functions on tensors of static
shape; no sockets, no files, no clock.

Shapes: T steps of an unroll, B unrolls.

Ends of episodes: ``ended`` says where and how, and there ``discount`` is 0 instead of gamma. A truncated episode would have gone
on, so its last reward gets ``gamma * final_value`` added, where ``final_value`` is what the acting policy expected of the final
observation. That keeps every unroll at T steps and costs the learner no forward pass; the estimate is as old as the policy that
acted.
"""

from collections.abc import Iterator

import torch

from rljob.algorithms.actor_critic import ActorCritic
from rljob.algorithms.batches import LossResult, UnrollBatch, minibatches_of_unrolls
from rljob.algorithms.impala import DECLARED
from rljob.algorithms.impala.parameters import ImpalaParameters
from rljob.algorithms.policy_network import PolicyNetwork
from rljob.algorithms.vtrace import bounded_log_ratio, explained_variance, vtrace

_KL_COST_OF_CONTROLS = 0.1
"""Where policyKlCost is not given: a ratio of densities runs away faster than one of probabilities."""


class IMPALA(ActorCritic[ImpalaParameters]):
    """What each method has to do is written in ``base``.

    ``policy_kl``: mean of ``ratio - 1 - log ratio`` between the policy that learns and the one that acted. ``clip_share``: share
    of steps whose ratio was clipped (by rho_clip). ``advantage_std``: deviation of the V-trace advantages, in units of rewards.
    ``log_std``: mean logarithm of the deviations of continuous actions.
    """

    name = "IMPALA"
    takes = DECLARED.takes
    parameters = ImpalaParameters

    def target_divergence(self, params: ImpalaParameters) -> float:
        return params.target_policy_kl

    def minibatches(self, params: ImpalaParameters, online: PolicyNetwork, batch: UnrollBatch) -> Iterator[UnrollBatch]:
        """``epochs`` passes over ``minibatches`` parts of equal size, of whole unrolls, so that time stays together."""
        yield from minibatches_of_unrolls(batch, params.epochs, params.minibatches)

    def loss(self, params: ImpalaParameters, online: PolicyNetwork, batch: UnrollBatch) -> LossResult:
        """Policy + value_cost * half the squared error - entropy_cost * entropy + policy_kl_cost * half the squared log-ratio,
        summed over the steps or their mean, as ``params.loss_reduction`` says. With ``normalize_returns`` errors and advantages
        are in units of the returns' deviation.

        Half the squared log-ratio is, in the mean over what the acting policy did, the two policies' divergence to second order.
        It grows with the logarithm of a ratio; ``policy_kl`` grows with the ratio, and a few rare actions would be most of it.
        """
        logits, values = online.unroll(batch.observation, batch.state, batch.ended)
        values, following = values[:-1], values[-1]
        policies = online.distribution
        normalised = policies.normalised(logits)
        taken = policies.log_prob(normalised, batch.action, batch.control)
        log_ratio = taken - batch.log_prob
        entropy = policies.entropy(normalised)
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
        policy = -(taken * online.in_units_of_returns(found.advantage))
        critic = 0.5 * online.in_units_of_returns(found.value - values).square()
        kl_cost = params.policy_kl_cost
        if kl_cost is None:
            kl_cost = _KL_COST_OF_CONTROLS if policies.controls else 0.0
        total = policy + params.value_cost * critic - params.entropy_cost * entropy
        if kl_cost > 0.0:
            total = total + kl_cost * 0.5 * log_ratio.square()
        reduced = total.sum() if params.loss_reduction == "Sum" else total.mean()
        gap = bounded_log_ratio(log_ratio.detach())
        metrics = {
            "policy_loss": policy,
            "value_loss": critic,
            "entropy": entropy,
            "policy_kl": gap.exp() - 1.0 - gap,
            "clip_share": (found.ratio > params.rho_clip).float(),
            "value": values,
            "explained_variance": explained_variance(found.value, values.detach()),
            "advantage_std": found.advantage.std(correction=0),
        }
        means = self.means(policies, normalised, metrics)
        return LossResult(reduced, means, divergence=means["policy_kl"], summed=params.loss_reduction == "Sum")

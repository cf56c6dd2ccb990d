"""PPO (Schulman et al. 2017): an iteration of unrolls of one policy, learned from in several epochs with a clipped ratio.

Advantages are generalised (Schulman et al. 2016), of values that the learner computes when an iteration begins, or before each
epoch (``recompute_advantages``), so that they are as new as its network, whichever weights acted and how long ago. Which unrolls
make an iteration is the queue's business (``rljob.learner.unroll_order``).

Shapes: T steps of an unroll, B unrolls, M single steps.
"""

from collections.abc import Iterator

import torch

from rljob.algorithms.actor_critic import ActorCritic
from rljob.algorithms.batches import LossResult, Moments, UnrollBatch, minibatches_of_steps, minibatches_of_unrolls
from rljob.algorithms.policy_network import PolicyNetwork
from rljob.algorithms.ppo import DECLARED
from rljob.algorithms.ppo.parameters import PPOParameters
from rljob.algorithms.vtrace import bounded_log_ratio, explained_variance, gae

MOST_OBSERVATIONS = 4096
"""What values are computed of at once, so that the memory of an iteration does not grow with it."""


class PPO(ActorCritic[PPOParameters]):
    """What each method has to do is written in ``base``.

    ``policy_kl``: mean of ``ratio - 1 - log ratio`` between the policy that learns and the one that acted (Schulman 2020).
    ``clip_share``: share of steps whose ratio was clipped. ``advantage_std``: deviation of the advantages before they are
    normalised. ``log_std``: mean logarithm of the deviations of continuous actions.
    """

    name = "PPO"
    takes = DECLARED.takes
    parameters = PPOParameters

    def iteration_lag(self, params: PPOParameters) -> int:
        return params.max_policy_lag

    def largest_divergence(self, params: PPOParameters) -> float:
        return params.target_kl

    def minibatches(self, params: PPOParameters, online: PolicyNetwork, batch: UnrollBatch) -> Iterator[UnrollBatch]:
        """``epochs`` passes over ``minibatches`` parts of equal size: of single steps, shuffled, or, with a memory, of whole
        unrolls, so that time stays together."""
        split = minibatches_of_steps if params.splits_steps else minibatches_of_unrolls
        for epoch in range(params.epochs):
            if epoch == 0 or params.recompute_advantages:
                batch = with_advantages(params, online, batch)
            yield from split(batch, 1, params.minibatches)

    def prepared(self, params: PPOParameters, minibatch: UnrollBatch, moments: Moments) -> UnrollBatch:
        """With normalised advantages, so that it does not matter how many threads and processes share a loss."""
        if not params.normalize_advantages:
            return minibatch
        advantage = minibatch.advantage
        assert advantage is not None, "minibatches gives advantages"
        mean, spread = moments(advantage)
        return minibatch._replace(advantage=(advantage - mean) / (spread + 1e-8), advantage_std=spread)

    def loss(self, params: PPOParameters, online: PolicyNetwork, batch: UnrollBatch) -> LossResult:
        """Clipped objective + value_cost * half the squared error - entropy_cost * entropy, the mean over steps."""
        assert batch.advantage is not None, "minibatches gives advantages"
        assert batch.value_target is not None, "minibatches gives value targets"
        if batch.single_steps:
            logits, values, _ = online(batch.observation)
        else:
            logits, values = online.unroll(batch.observation, batch.state, batch.ended)
            values = values[:-1]
        policies = online.distribution
        normalised = policies.normalised(logits)
        log_ratio = bounded_log_ratio(policies.log_prob(normalised, batch.action, batch.control) - batch.log_prob)
        ratio = log_ratio.exp()
        advantage = batch.advantage
        bounded = ratio.clamp(1.0 - params.clip_range, 1.0 + params.clip_range)
        policy = -torch.minimum(ratio * advantage, bounded * advantage)
        error = batch.value_target - values
        critic = 0.5 * online.in_units_of_returns(error).square()
        entropy = policies.entropy(normalised)
        total = policy + params.value_cost * critic - params.entropy_cost * entropy
        gap = log_ratio.detach()
        spread = advantage.std(correction=0) if batch.advantage_std is None else batch.advantage_std
        metrics = {
            "policy_loss": policy,
            "value_loss": critic,
            "entropy": entropy,
            "policy_kl": gap.exp() - 1.0 - gap,
            "clip_share": ((ratio.detach() - 1.0).abs() > params.clip_range).float(),
            "value": values,
            "explained_variance": explained_variance(batch.value_target, values.detach()),
            "advantage_std": online.in_reward_units(spread),
        }
        means = self.means(policies, normalised, metrics)
        return LossResult(total.mean(), means, divergence=means["policy_kl"])


@torch.no_grad()
def with_advantages(params: PPOParameters, online: PolicyNetwork, batch: UnrollBatch) -> UnrollBatch:
    """``batch`` with advantages [T, B], in the value head's units, and value targets [T, B], in those of rewards, from the values
    that ``online`` has of its observations."""
    steps, unrolls = batch.log_prob.shape
    size = max(1, MOST_OBSERVATIONS // (steps + 1))
    parts = [batch.unrolls(slice(start, start + size)) for start in range(0, unrolls, size)]
    value = torch.cat([online.unroll(part.observation, part.state, part.ended)[1] for part in parts], dim=1)
    reward = batch.reward + params.gamma * batch.final_value
    found = gae(batch.discount, reward, value[:-1], value[-1], trace_decay=params.gae_lambda)
    return batch._replace(advantage=online.in_units_of_returns(found.advantage), value_target=found.value)

"""The parameters of PPO (Schulman et al., 2017): iterations of fresh unrolls, each learned from in several epochs."""

from __future__ import annotations

from typing import Annotated

from rljob.api.actor_critic import ActorCriticParameters
from rljob.api.learner_parameters import OptimizerName
from rljob.api.mutability import never
from rljob.api.parameters import OF_THIS_NETWORK, OF_THIS_SCALE
from rljob.api.types import Flag, Integer, Real


class PPOParameters(ActorCriticParameters):
    """Hyper-parameters of PPO.

    A "step" is one action of one environment; an "unroll" is unrollLength steps of one environment; an "iteration" is batchSize
    unrolls; an "update" is one optimiser step, on one minibatch. Weights are published after each iteration.
    """

    unroll_length: Annotated[int, Integer(1, 4096)] = 128
    """Steps of one environment in an iteration."""
    batch_size: Annotated[int, Integer(1, 4096)] = 16
    """Unrolls of an iteration, from whichever environments finish them first; at least as many as there are environments."""
    max_policy_lag: Annotated[int, Integer(0, 1)] = 1
    """How many versions of the weights an iteration's unrolls may be old. 0: actors wait while the learner updates. 1: they
    play the next iteration meanwhile, with the weights of before. What is older is dropped."""
    epochs: Annotated[int, Integer(1, 100)] = 4
    """Passes over an iteration."""
    minibatches: Annotated[int, Integer(1, 4096)] = 4
    """Updates that a pass is split into: by single steps, shuffled, or by whole unrolls where recurrent."""
    clip_range: Annotated[float, Real(0, 1, above=True)] = 0.2
    """How far the probability ratio may leave 1 before it is clipped."""
    gae_lambda: Annotated[float, Real(0, 1)] = 0.95
    """Lambda of the generalised advantages (Schulman et al., 2016)."""
    recompute_advantages: Flag = False
    """Compute advantages anew before each pass, with the values learned so far."""
    normalize_advantages: Flag = True
    """Give the advantages of each minibatch mean 0 and deviation 1."""
    target_kl: Annotated[float, Real(0)] = 0.0
    """Where above 0: an iteration is left early once the policy of a minibatch has diverged this far, in nats, from the one that
    acted."""
    entropy_cost: Annotated[float, Real(0, 1000)] = 0.0
    """Weight of the entropy bonus."""
    normalize_observations: Annotated[Flag, never(OF_THIS_SCALE)] = True
    """Give every float of the vectors that are observed mean 0 and deviation 1, by statistics of all iterations so far."""
    normalize_returns: Annotated[Flag, never(OF_THIS_SCALE)] = True
    """Divide the value's errors by the deviation of the returns so far. Rewards, values and scores keep their units."""
    optimizer: OptimizerName = "Adam"
    """Which optimiser. CentredRMSProp divides by the gradient's deviation, RMSProp by its root mean square; Muon makes the
    momentum of matrices orthogonal, and Adam moves all else. Changed while a job is suspended, its moments begin anew."""
    learning_rate: Annotated[float, Real(0, 1, above=True)] = 3e-4
    """Step size of the optimiser at the start."""
    optimizer_epsilon: Annotated[float, Real(0, 1, above=True)] = 1e-5
    """The number that keeps the optimiser's denominator from zero: beside the root with Adam, under it with RMSProp."""
    gradient_clip_norm: Annotated[float, Real(0)] = 0.5
    """Largest gradient norm; longer gradients are scaled to it. 0 does not clip."""
    hidden_units: Annotated[int, Integer(1, 16_384), never(OF_THIS_NETWORK)] = 64
    """Width of the hidden layer(s)."""
    orthogonal_init: Flag = True
    """Start from orthogonal weights: gain sqrt(2) in the layers, 0.01 in the policy's head, 1 in the value's."""
    evaluation_temperature: Annotated[float, Real(0, 100)] = 0.0
    """The logits are divided by it while a policy is judged; 0 takes the most probable action."""

    @property
    def publish_interval(self) -> int:
        """In updates: 0, at the end of each iteration."""
        return 0

    @property
    def prefetch_batches(self) -> int:
        """The next iteration is gathered while one is learned from."""
        return 1

    @property
    def weights_refresh_steps(self) -> int:
        """An unroll is played with the weights that it began with."""
        return 0

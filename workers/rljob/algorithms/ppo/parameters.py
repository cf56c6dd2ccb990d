"""The parameters of PPO (Schulman et al., 2017): iterations of fresh unrolls, each learned from in several epochs."""

from typing import Annotated, Literal

from rljob.api.mutability import LIVE, never
from rljob.api.parameters import (
    OF_THIS_FUNCTION,
    OF_THIS_NETWORK,
    OF_THIS_SCALE,
    ActorCriticParameterSet,
    ClipNorm,
    Cost,
    Epsilon,
    LearningRate,
    OptimizerName,
)
from rljob.api.types import Flag, Integer, Real


class PPOParameters(ActorCriticParameterSet):
    """Hyper-parameters of PPO.

    A "step" is one action of one environment; an "unroll" is unrollLength steps of one environment; an "iteration" is batchSize
    unrolls; an "update" is one optimiser step, on one minibatch. Weights are published after each iteration.
    """

    unroll_length: Annotated[int, Integer(1, 4096)] = 128
    batch_size: Annotated[int, Integer(1, 4096)] = 16
    max_policy_lag: Annotated[int, Integer(0, 1)] = 1
    """Age, in versions, of the weights of an iteration's unrolls; older ones are dropped. 0: actors wait during updates. 1:
    they play the next iteration meanwhile."""
    epochs: Annotated[int, Integer(1, 100)] = 4
    minibatches: Annotated[int, Integer(1, 4096)] = 4
    clip_range: Annotated[float, Real(0, 1, above=True), LIVE] = 0.2
    """How far the probability ratio may leave 1 before it is clipped."""
    gae_lambda: Annotated[float, Real(0, 1)] = 0.95
    """Lambda of the generalised advantages (Schulman et al., 2016)."""
    recompute_advantages: Flag = False
    """Recompute advantages before each pass with the newest values."""
    normalize_advantages: Flag = True
    """Normalise the advantages of each minibatch to mean 0 and deviation 1."""
    target_kl: Annotated[float, Real(0)] = 0.0
    """Above 0: end an iteration once a minibatch's policy has diverged this far, in nats, from the acting one."""
    entropy_cost: Cost = 0.0
    normalize_observations: Annotated[Flag, never(OF_THIS_SCALE)] = True
    normalize_returns: Annotated[Flag, never(OF_THIS_SCALE)] = True
    optimizer: OptimizerName = "Adam"
    learning_rate: LearningRate = 3e-4
    optimizer_epsilon: Epsilon = 1e-5
    gradient_clip_norm: ClipNorm = 0.5
    hidden_units: Annotated[int, Integer(1, 16_384), never(OF_THIS_NETWORK)] = 64
    activation: Annotated[Literal["ReLU", "Tanh"] | None, never(OF_THIS_FUNCTION)] = None
    separate_critic: Annotated[Flag | None, never(OF_THIS_NETWORK)] = None
    orthogonal_init: Flag = True
    evaluation_temperature: Annotated[float, Real(0, 100)] = 0.0

    @property
    def splits_steps(self) -> bool:
        return self.recurrent == "None"

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

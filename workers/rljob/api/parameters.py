"""Bases of the parameter sets: of environments, and of algorithms, of those of one's own, too.

A subclass adds fields of its own, or gives one of these another default by writing it again; the words of a field are inherited.
"""

from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import ConfigDict, Field

from rljob.api.fields import Follows
from rljob.api.mutability import LIVE, UNLEARNED, never
from rljob.api.types import APIModel, Flag, Integer, JSONObject, Real, WordOrFactory

OptimizerName: TypeAlias = Literal["Adam", "RMSProp", "CentredRMSProp"]
LearningRate: TypeAlias = Annotated[float, Real(0, 1, above=True), LIVE]
Epsilon: TypeAlias = Annotated[float, Real(0, 1, above=True)]
ClipNorm: TypeAlias = Annotated[float, Real(0), LIVE]
Cost: TypeAlias = Annotated[float, Real(0, 1000), LIVE]

MOST_LAG_UPDATES: Final = 10**9
OF_THIS_NETWORK = "checkpoints hold the tensors of this network"
STORED = "stored experience was made with it"
OF_THIS_FUNCTION = "a checkpoint's weights were trained with these functions"
OF_THIS_SCALE = "the network was trained on numbers of this scale"
"""Why a parameter never changes (`rljob.api.mutability`)."""


class ParameterSet(APIModel):
    """Base of the parameter sets. Frozen; ``updated`` gives a changed copy whose fields have been checked again.

    Each field is checked when a set is made, its default too. Rules between fields (`rljob.api.rules`) are asked when a manifest
    is read.
    """

    model_config = ConfigDict(validate_default=True)

    def unsuited(self, environment: Any) -> str:
        """Why these parameters make no sense in an environment (`rljob.envs.spec.EnvironmentSpec`); empty where they do."""
        return ""

    def updated(self, **changes: Any) -> Self:
        """A copy with ``changes`` (Python names), validated. Raises pydantic's ValidationError."""
        return type(self).model_validate({**self.model_dump(), **changes})


class LearnerParameterSet(ParameterSet):
    """What the loops read of every algorithm's parameters but of its batches."""

    gamma: Annotated[float, Real(0, 1)] = 0.99
    """Discount per step."""
    learning_rate: LearningRate = 1e-4
    """Initial step size of the optimiser; with SAC, of the policy's."""
    learning_rate_final: Annotated[float, Real(0, 1), LIVE, Follows("learningRate, so that it does not decay")] = Field(
        default_factory=lambda known: known.get("learning_rate", 0.0)
    )
    """Step size at the end of the linear decay."""
    learning_rate_decay_steps: Annotated[int, Integer(0)] = 0
    """Steps of all environments over which the learning rate falls; 0 keeps it constant."""
    optimizer: OptimizerName = "Adam"
    """The optimiser. CentredRMSProp divides by the gradient's standard deviation. A change resets the moments."""
    optimizer_epsilon: Epsilon = 1e-5
    """Added to the optimiser's denominator: beside the root with Adam, under it with RMSProp."""
    rmsprop_decay: Annotated[float, Real(0, 1, below=True)] = 0.95
    """Decay of RMSProp's running means."""
    rmsprop_momentum: Annotated[float, Real(0, 1, below=True)] = 0.0
    """Momentum of RMSProp."""
    gradient_clip_norm: ClipNorm = 40.0
    """Largest gradient norm; 0 does not clip. SAC clips critics, policy and temperature each."""
    evaluation_weights_decay: Annotated[float, Real(0, 1, below=True)] = 0.0
    """Decay, per update, of the moving average of weights that evaluations use; 0 uses the online weights."""
    precision: Literal["Auto", "Plain", "FP32", "TF32", "BF16", "FP16"] = "Auto"
    """Arithmetic of an update; Auto measures. TF32 and FP16 (with loss scaling) need a GPU; else FP32. Plain: FP32,
    nothing measured."""
    compile: Annotated[Flag | None, UNLEARNED] = None
    """Compile an update. true: torch.compile. Unset: a CUDA graph, or on one machine's CPU short updates of a long job, if
    faster."""


class TransitionParameterSet(LearnerParameterSet):
    """Parameters of a ``TransitionAlgorithm``, which learns from n-step transitions out of spec.replay."""

    gamma: Annotated[float, Real(0, 1), never(STORED)] = 0.99
    batch_size: Annotated[int, Integer(1, 65_536)] = 256
    """Transitions of an update."""
    n_step: Annotated[int, Integer(1, 100), never(STORED)] = 1
    """Steps of reward before the bootstrap value; SAC leaves out the entropies between."""
    chunk_length: Annotated[int, Integer(1, 1000), never(STORED)] = 50
    """Steps that an actor sends together."""
    publish_interval: Annotated[int, Integer(1)] = 10
    """Updates between two versions of the weights sent to the actors."""
    prefetch_batches: Annotated[int, Integer(0, 64)] = 2
    """Batches that the learner requests ahead. 0, not with IMPALA: actors and learner wait for each other."""
    target_update_tau: Annotated[float, Real(0, 1)] = 0.0
    """Share of the online network (SAC: of the critics) that the target takes over at each update; 0 copies at intervals
    instead."""
    target_update_interval: Annotated[int, Integer(0), Follows("2500; 0 with targetUpdateTau")] = Field(
        default_factory=lambda known: 0 if known.get("target_update_tau") else 2500
    )
    """Updates between copies of the online network to the target network."""


class ActionValueParameterSet(TransitionParameterSet):
    """Parameters of an ``ActionValueAlgorithm``, which acts by the best action value, and by a ladder of epsilons at random."""

    epsilon_base: Annotated[float, Real(0, 1), LIVE] = 0.4
    """Environment i of N explores with base^(1 + exponent * i / (N - 1))."""
    epsilon_exponent: Annotated[float, Real(0, 100), LIVE] = 7.0
    """The exponent in it; 0 gives every environment epsilonBase."""
    evaluation_epsilon: Annotated[float, Real(0, 1)] = 0.01
    """Share of random actions in evaluations."""


class UnrollQueue(APIModel):
    """The queue of unrolls in the learner; its bound is a budget for staleness."""

    capacity: Annotated[int, Integer(1, 1_000_000)] = 64
    """Unrolls that may wait."""
    overflow: Literal["Block", "DropOldest"] = "Block"
    """What to do if it is full. Block: actors wait. DropOldest: drop and count the oldest unroll."""
    max_policy_lag_updates: Annotated[int, Integer(1, MOST_LAG_UPDATES)] = 50
    """Discard unrolls whose weights are older than this many updates. Unset, the time that weights travel is added, up to 1000.
    """


class UnrollParameterSet(LearnerParameterSet):
    """Parameters of an ``UnrollAlgorithm``, which learns from unrolls, once or in several passes, out of the learner's queue."""

    batch_size: Annotated[int, Integer(1, 4096)] = 32
    """Unrolls of a batch."""
    unroll_length: Annotated[int, Integer(1, 1000)] = 20
    """Steps of one environment that are sent and learned from as one sequence."""
    prefetch_batches: Annotated[int, Integer(1, 64)] = 2
    """Batches that the learner requests ahead. 0, not with IMPALA: actors and learner wait for each other."""
    publish_interval: Annotated[int, Integer(1)] = 1
    """Updates between two versions of the weights sent to the actors."""
    unroll_queue: UnrollQueue = Field(
        default_factory=lambda known: UnrollQueue(capacity=max(64, 2 * known.get("batch_size", 1)))
    )
    """Where unrolls wait for the learner, and how old they may become; capacity is at least batchSize."""


class ActorCriticParameterSet(LearnerParameterSet):
    """Parameters of an ``ActorCritic``, such as IMPALA and PPO: a policy and a value, learned from unrolls.

    A "step" is one action of one environment; an "unroll" is unrollLength steps of one environment; an "update" is one
    optimiser step, on one minibatch.
    """

    unroll_length: Annotated[int, Integer(1, 4096)] = 20
    """Steps of one environment that are sent and learned from as one sequence."""
    batch_size: Annotated[int, Integer(1, 4096)] = 32
    """Unrolls of a batch; with PPO of an iteration."""
    epochs: Annotated[int, Integer(1, 100)] = 1
    """Passes over a batch or iteration."""
    minibatches: Annotated[int, Integer(1, 4096)] = 1
    """Updates in a pass. Whole unrolls are split; PPO without LSTM shuffles single steps."""
    value_cost: Cost = 0.5
    """Weight of the value loss."""
    entropy_cost: Cost = 0.01
    """Weight of the entropy bonus."""
    normalize_observations: Annotated[Flag, never(OF_THIS_SCALE)] = False
    """Normalise the floats of observed vectors to mean 0 and deviation 1, over all batches so far; replaces centreInput."""
    normalize_returns: Annotated[Flag, never(OF_THIS_SCALE)] = False
    """Divide value errors, and IMPALA's advantages, by the deviation of returns so far. Rewards, values and scores keep their
    units."""
    optimizer: OptimizerName = "RMSProp"
    learning_rate: LearningRate = 6e-4
    rmsprop_decay: Annotated[float, Real(0, 1, below=True)] = 0.99
    optimizer_epsilon: Epsilon = 0.01
    network: Annotated[
        str, WordOrFactory(("Auto", "Nature", "Deep", "Compact", "Small", "MLP")), never(OF_THIS_NETWORK)
    ] = "Auto"
    """The network. Auto: by the shape of a frame (docs/algorithms/networks.md). Nature: Mnih et al. 2015, for 84x84. Deep
    (IMPALA, PPO): the residual network of Espeholt et al. 2018. Compact: two small convolutions, for 42x42. Small: one of 3x3,
    for small grids. MLP: for vectors."""
    network_parameters: Annotated[dict[str, Any], JSONObject()] = Field(default_factory=dict)
    """Parameters of your own network."""
    hidden_units: Annotated[int, Integer(1, 16_384), never(OF_THIS_NETWORK)] = 256
    """Width of the hidden layers; 0 (ApeXDQN) is the network's own default."""
    layer_norm: Annotated[Flag, never(OF_THIS_NETWORK)] = False
    """Normalise each layer's features before its activation."""
    activation: Annotated[Literal["ReLU", "Tanh"] | None, never(OF_THIS_FUNCTION)] = "ReLU"
    """Activation of hidden layers; convolutions use ReLU. Unset, with PPO: Tanh in an MLP, else ReLU."""
    separate_critic: Annotated[Flag | None, never(OF_THIS_NETWORK)] = False
    """Give the value its own hidden layers; convolutions stay shared. Unset, with PPO: for an MLP without LSTM."""
    orthogonal_init: Flag = False
    """Start from orthogonal weights, with gain sqrt(2), 0.01 in the policy's head and 1 in the value's."""
    log_std_init: Annotated[float, Real(-5, 2)] = 0.0
    """Initial log standard deviation of continuous actions, scaled to [-1, 1]."""
    recurrent: Annotated[Literal["None", "LSTM"], never(OF_THIS_NETWORK)] = "None"
    """Memory of the network. LSTM: after the hidden layer, reset at each episode."""
    lstm_units: Annotated[int, Integer(1, 16_384), never(OF_THIS_NETWORK)] = 256
    """Width of the LSTM."""
    evaluation_temperature: Annotated[float, Real(0, 100)] = 0.5
    """Divides logits, or multiplies deviations of continuous actions, in evaluations; 0 takes the most probable action."""

    @property
    def splits_steps(self) -> bool:
        """Whether minibatches are of single steps, and not of whole unrolls."""
        return False

    @property
    def updates_per_batch(self) -> int:
        """Optimiser steps that one batch of unrolls gives."""
        return self.epochs * self.minibatches

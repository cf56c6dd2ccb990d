"""What the parameters of IMPALA and of PPO have in common: a policy and a value, learned from unrolls."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from rljob.api.learner_parameters import Epsilon, LearnerParameterSet, LearningRate, OptimizerName
from rljob.api.mutability import never
from rljob.api.parameters import OF_THIS_FUNCTION, OF_THIS_NETWORK, OF_THIS_SCALE
from rljob.api.types import Flag, Integer, JSONObject, Real, WordOrFactory


class ActorCriticParameters(LearnerParameterSet):
    """A "step" is one action of one environment; an "unroll" is unrollLength steps of one environment; an "update" is one
    optimiser step, on one minibatch.
    """

    unroll_length: Annotated[int, Integer(1, 4096)] = 20
    """Steps of one environment that are sent and learned from as one sequence."""
    batch_size: Annotated[int, Integer(1, 4096)] = 32
    """Unrolls that make one batch; with PPO, an iteration, from whichever environments finish them first: at least as many as
    there are environments."""
    epochs: Annotated[int, Integer(1, 100)] = 1
    """Passes over a batch, or an iteration, before the next one."""
    minibatches: Annotated[int, Integer(1, 4096)] = 1
    """Updates that a pass is split into: by whole unrolls; with PPO by single steps, shuffled, where it is not recurrent."""
    value_cost: Annotated[float, Real(0, 1000)] = 0.5
    """Weight of the value loss."""
    entropy_cost: Annotated[float, Real(0, 1000)] = 0.01
    """Weight of the entropy bonus."""
    normalize_observations: Annotated[Flag, never(OF_THIS_SCALE)] = False
    """Give every float of the vectors that are observed mean 0 and deviation 1, by statistics of all batches so far. In place of
    centreInput. What a replay stores stays as it was observed."""
    normalize_returns: Annotated[Flag, never(OF_THIS_SCALE)] = False
    """Divide the value's errors, and IMPALA's advantages, by the deviation of the returns so far. Rewards, values and scores keep
    their units."""
    optimizer: OptimizerName = "RMSProp"
    learning_rate: LearningRate = 6e-4
    rmsprop_decay: Annotated[float, Real(0, 1, below=True)] = 0.99
    optimizer_epsilon: Epsilon = 0.01
    network: Annotated[
        str, WordOrFactory(("Auto", "Nature", "Deep", "Compact", "Small", "MLP")), never(OF_THIS_NETWORK)
    ] = "Auto"
    """Nature: Mnih et al. 2015, for 84x84. Deep, of IMPALA and PPO: the residual network of Espeholt et al. 2018. Compact: two
    small convolutions, for 42x42. Small: one of 3x3, for grids of a few cells. MLP: for vectors. Auto chooses by the shape of a
    frame (docs/algorithms/networks.md)."""
    network_parameters: Annotated[dict[str, Any], JSONObject()] = Field(default_factory=dict)
    """Parameters of a network of your own."""
    hidden_units: Annotated[int, Integer(1, 16_384), never(OF_THIS_NETWORK)] = 256
    """Width of the hidden layer(s); with ApeXDQN, 0 takes the network's own default."""
    layer_norm: Annotated[Flag, never(OF_THIS_NETWORK)] = False
    """Normalise each layer's features before its activation."""
    activation: Annotated[Literal["ReLU", "Tanh"], never(OF_THIS_FUNCTION)] = "ReLU"
    """Behind each hidden layer. Behind convolutions it is ReLU."""
    separate_critic: Annotated[Flag, never(OF_THIS_NETWORK)] = False
    """Hidden layers of its own for the value, beside those of the policy; both see the same convolutions."""
    orthogonal_init: Flag = False
    """Start from orthogonal weights: gain sqrt(2) in the layers, 0.01 in the policy's head, 1 in the value's."""
    log_std_init: Annotated[float, Real(-5, 2)] = 0.0
    """Of continuous actions: the logarithm of the deviation that they begin with, where a space reaches from -1 to 1."""
    recurrent: Annotated[Literal["None", "LSTM"], never(OF_THIS_NETWORK)] = "None"
    """LSTM: a memory after the hidden layer, whose state travels with the unrolls and starts anew with each episode."""
    lstm_units: Annotated[int, Integer(1, 16_384), never(OF_THIS_NETWORK)] = 256
    """Width of the LSTM."""
    evaluation_temperature: Annotated[float, Real(0, 100)] = 0.5
    """The logits are divided by it while a policy is judged, and deviations of continuous actions multiplied; 0 takes the most
    probable action."""

    @property
    def updates_per_batch(self) -> int:
        """Optimiser steps that one batch of unrolls gives."""
        return self.epochs * self.minibatches

"""The parameters of IMPALA: an actor-critic on unrolls from many actors, corrected by V-trace (Espeholt et al., 2018), or
by a clipped surrogate (Schulman et al., 2017) on the same unrolls; and the queue of unrolls in front of its learner."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from rljob.api.mutability import never
from rljob.api.parameters import OF_THIS_NETWORK, ParameterSet
from rljob.api.types import APIModel, Flag, Integer, JSONObject, Real, WordOrFactory


class UnrollQueue(APIModel):
    """The queue of unrolls in the learner; its bound is a budget for staleness."""

    capacity: Annotated[int, Integer(1, 1_000_000)] = 64
    """Unrolls that may wait; at least one batch."""
    overflow: Literal["Block", "DropOldest"] = "Block"
    """What happens when it is full. Block: actors wait. DropOldest: the oldest unroll is dropped, and counted."""
    max_policy_lag_updates: Annotated[int, Integer(1, 10**9)] = 50
    """Unrolls with weights older than so many updates are discarded. Unset, the time that weights travel is added, to at most
    1000."""


class ImpalaParameters(ParameterSet):
    """Hyper-parameters of IMPALA.

    A "step" is one action of one environment; an "unroll" is unrollLength steps of one environment; an "update" is one
    optimiser step, on one minibatch.
    """

    gamma: Annotated[float, Real(0, 1)] = 0.99
    """What a reward one step later is worth: the discount per step."""
    unroll_length: Annotated[int, Integer(1, 1000)] = 20
    """Steps of one environment that are sent and learned from as one sequence."""
    batch_size: Annotated[int, Integer(1, 4096)] = 32
    """Unrolls that make one batch."""
    loss: Literal["VTrace", "ClippedSurrogate"] = "VTrace"
    """VTrace: policy gradient with truncated importance weights. ClippedSurrogate: PPO's loss on the same unrolls, made
    for several epochs."""
    rho_clip: Annotated[float, Real(0, above=True)] = 1.0
    """Where VTrace truncates the importance weight of a step; it decides which policy the values belong to."""
    c_clip: Annotated[float, Real(0, above=True)] = 1.0
    """Where VTrace truncates the weights that carry a later step's error back; at most rhoClip."""
    vtrace_lambda: Annotated[float, Real(0, 1)] = 1.0
    """Factor on those weights: below 1, VTrace leans on the values more and on far rewards less."""
    gae_lambda: Annotated[float, Real(0, 1)] = 0.95
    """Lambda of the generalised advantages of ClippedSurrogate."""
    clip_range: Annotated[float, Real(0, 1, above=True)] = 0.2
    """How far ClippedSurrogate lets the probability ratio leave 1."""
    normalize_advantages: Flag = True
    """Give the advantages of a batch mean 0 and deviation 1, for ClippedSurrogate."""
    epochs: Annotated[int, Integer(1, 100)] = 1
    """Passes over a batch before the next one."""
    minibatches: Annotated[int, Integer(1, 4096)] = 1
    """Updates a pass is split into. ClippedSurrogate shuffles single steps, or whole unrolls where recurrent; VTrace
    splits by unrolls."""
    value_cost: Annotated[float, Real(0, 1000)] = 0.5
    """Weight of the value loss."""
    entropy_cost: Annotated[float, Real(0, 1000)] = 0.01
    """Weight of the entropy bonus."""
    policy_kl_cost: Annotated[float, Real(0, 1000)] = 0.0
    """Weight of a penalty on leaving the policy that acted: half the squared log-ratio of a step, whose mean is their divergence
    to second order. It lets VTrace make several passes."""
    loss_reduction: Literal["Sum", "Mean"] = "Sum"
    """Whether the losses of a minibatch's steps are added, as published for IMPALA, or averaged; the learning rate
    depends on it."""
    optimizer: Literal["Adam", "RMSProp", "CentredRMSProp"] = "RMSProp"
    """Which optimiser. CentredRMSProp divides by the gradient's deviation, RMSProp by its root mean square. Changed while a job
    is suspended, its moments begin anew."""
    learning_rate: Annotated[float, Real(0, 1, above=True)] = 6e-4
    """Step size of the optimiser at the start."""
    learning_rate_final: Annotated[float, Real(0, 1)] = Field(
        default_factory=lambda known: known.get("learning_rate", 0.0)
    )
    """Step size at the end of the linear decay."""
    learning_rate_decay_steps: Annotated[int, Integer(0)] = 0
    """Steps (of all environments) over which the learning rate falls; 0 keeps it constant."""
    target_policy_kl: Annotated[float, Real(0)] = 0.0
    """Where above 0: the learning rate is lowered below its schedule, batch for batch, while the mean policy_kl of a batch's
    updates is above this, and raised back up to it when below; 0 follows the schedule alone."""
    rmsprop_decay: Annotated[float, Real(0, 1, below=True)] = 0.99
    """Decay of RMSProp's running means; Adam does not use it."""
    rmsprop_momentum: Annotated[float, Real(0, 1, below=True)] = 0.0
    """Momentum of RMSProp; Adam does not use it."""
    optimizer_epsilon: Annotated[float, Real(0, 1, above=True)] = 0.01
    """The number that keeps the optimiser's denominator from zero: beside the root with Adam, under it with RMSProp, as the
    published numbers mean it."""
    gradient_clip_norm: Annotated[float, Real(0)] = 40.0
    """Largest gradient norm; longer gradients are scaled to it. 0 does not clip."""
    network: Annotated[
        str, WordOrFactory(("Auto", "Nature", "Deep", "Compact", "Small", "MLP")), never(OF_THIS_NETWORK)
    ] = "Auto"
    """Nature: Mnih et al. 2015, for 84x84. Deep: the residual network of Espeholt et al. 2018. Compact: two small
    convolutions, for 42x42. Small: one of 3x3, for grids of a few cells. MLP: for vectors. Auto chooses by the shape of a
    frame (docs/algorithms/networks.md)."""
    network_parameters: Annotated[dict[str, Any], JSONObject()] = Field(default_factory=dict)
    """Parameters of a network of your own."""
    hidden_units: Annotated[int, Integer(1, 16_384), never(OF_THIS_NETWORK)] = 256
    """Width of the hidden layer(s)."""
    layer_norm: Annotated[Flag, never(OF_THIS_NETWORK)] = False
    """Normalise each layer's features before its activation."""
    orthogonal_init: Flag = False
    """Start from orthogonal weights: gain sqrt(2) in the layers, 0.01 in the policy's head, 1 in the value's."""
    recurrent: Annotated[Literal["None", "LSTM"], never(OF_THIS_NETWORK)] = "None"
    """LSTM: a memory after the hidden layer, whose state travels with the unrolls and starts anew with each episode."""
    lstm_units: Annotated[int, Integer(1, 16_384), never(OF_THIS_NETWORK)] = 256
    """Width of the LSTM."""
    weights_refresh_steps: Annotated[int, Integer(0, 1000)] = 1
    """Steps after which newer weights are taken inside an unroll; 0: only between unrolls. With actors.inference: Central
    every step is answered with the newest weights; anything but 1 is then refused."""
    publish_interval: Annotated[int, Integer(1)] = 1
    """Updates between two versions of the weights sent to the actors."""
    correct_off_policy: Flag = True
    """False takes every importance weight of VTrace as 1, to show what policy lag costs without the correction."""
    evaluation_temperature: Annotated[float, Real(0, 100)] = 0.5
    """The logits are divided by it while a policy is judged; 0 takes the most probable action."""
    evaluation_weights_decay: Annotated[float, Real(0, 1, below=True)] = 0.0
    """Per-update decay of the moving average of the weights that evaluations use; 0 judges the online weights."""
    precision: Literal["Auto", "FP32", "TF32", "BF16", "FP16"] = "Auto"
    """Arithmetic of an update; Auto measures. TF32 and FP16 (loss scaled): on a GPU, else FP32."""
    compile: Flag | None = None
    """true: torch.compile an update. Unless false, a GPU replays a CUDA graph if faster."""
    prefetch_batches: Annotated[int, Integer(1, 64)] = 1
    """Batches the learner takes from the queue ahead of use."""
    unroll_queue: UnrollQueue = Field(default_factory=UnrollQueue)
    """Where unrolls wait for the learner, and how old they may become."""
    seed: Annotated[int, Integer(0, 2**31 - 1)] = 1
    """Seed of networks, exploration, shuffling and environments."""

    @property
    def updates_per_batch(self) -> int:
        """Optimiser steps that one batch of unrolls gives."""
        return self.epochs * self.minibatches

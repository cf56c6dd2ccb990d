"""The parameters of IMPALA: an actor-critic on unrolls from many actors, corrected by V-trace (Espeholt et al., 2018)."""

from typing import Annotated, Literal

from pydantic import Field

from rljob.api.parameters import ActorCriticParameterSet, UnrollQueue
from rljob.api.types import Flag, Integer, Real


class ImpalaParameters(ActorCriticParameterSet):
    """Hyper-parameters of IMPALA.

    A "step" is one action of one environment; an "unroll" is unrollLength steps of one environment; an "update" is one
    optimiser step, on one minibatch.
    """

    rho_clip: Annotated[float, Real(0, above=True)] = 1.0
    """Where V-trace truncates the importance weight of a step; it decides which policy the values belong to."""
    c_clip: Annotated[float, Real(0, above=True)] = 1.0
    """Where V-trace truncates the weights that carry a later step's error back; at most rhoClip."""
    vtrace_lambda: Annotated[float, Real(0, 1)] = 1.0
    """Factor on those weights: below 1, V-trace leans on the values more and on far rewards less."""
    policy_kl_cost: Annotated[float, Real(0, 1000)] | None = None
    """Weight of a penalty on leaving the policy that acted: half the squared log-ratio of a step, whose mean is their divergence
    to second order. It lets V-trace make several passes. Unset: 0.1 where actions have continuous numbers, else 0."""
    loss_reduction: Literal["Sum", "Mean"] = "Sum"
    """Whether the losses of a minibatch's steps are added, as published for IMPALA, or averaged; the learning rate
    depends on it."""
    target_policy_kl: Annotated[float, Real(0)] = 0.0
    """Where above 0: the learning rate is lowered below its schedule, batch for batch, while the mean policy_kl of a batch's
    updates is above this, and raised back up to it when below; 0 follows the schedule alone."""
    weights_refresh_steps: Annotated[int, Integer(0, 1000)] = 1
    """Steps after which newer weights are taken inside an unroll; 0: only between unrolls. With actors.inference: Central
    every step is answered with the newest weights; anything but 1 is then refused."""
    publish_interval: Annotated[int, Integer(1)] = 1
    """Updates between two versions of the weights sent to the actors."""
    correct_off_policy: Flag = True
    """False takes every importance weight of V-trace as 1, to show what policy lag costs without the correction."""
    prefetch_batches: Annotated[int, Integer(1, 64)] = 1
    """Batches the learner takes from the queue ahead of use."""
    unroll_queue: UnrollQueue = Field(default_factory=UnrollQueue)
    """Where unrolls wait for the learner, and how old they may become."""

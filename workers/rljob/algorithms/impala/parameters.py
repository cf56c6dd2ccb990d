"""The parameters of IMPALA, an actor-critic on unrolls from many actors, corrected by V-trace (Espeholt et al., 2018); and how
old experience can be when its learner sees it: arithmetic that the rules and the documentation share."""

import math
from typing import Annotated, Literal

from pydantic import Field

from rljob.api.mutability import LIVE
from rljob.api.parameters import ActorCriticParameterSet, UnrollQueue
from rljob.api.roles import credits_per_actor
from rljob.api.types import Flag, Integer, Real


class ImpalaParameters(ActorCriticParameterSet):
    """Hyper-parameters of IMPALA.

    A "step" is one action of one environment; an "unroll" is unrollLength steps of one environment; an "update" is one
    optimiser step, on one minibatch.
    """

    rho_clip: Annotated[float, Real(0, above=True), LIVE] = 1.0
    """Where V-trace truncates the importance weight of a step."""
    c_clip: Annotated[float, Real(0, above=True), LIVE] = 1.0
    """Where V-trace truncates the weights that carry later errors back; at most rhoClip."""
    vtrace_lambda: Annotated[float, Real(0, 1), LIVE] = 1.0
    """Factor on those weights; below 1, far rewards count less."""
    policy_kl_cost: Annotated[float, Real(0, 1000)] | None = None
    """Weight of a penalty on leaving the acting policy (half the squared log-ratio of a step).
    Unset: 0.1 with continuous actions, else 0."""
    loss_reduction: Literal["Sum", "Mean"] = "Sum"
    """Add the losses of a minibatch's steps, as published, or average them; the learning rate depends on it."""
    target_policy_kl: Annotated[float, Real(0)] = 0.0
    """Above 0: lower the learning rate below its schedule while a batch's mean policy_kl is above this, and raise it again
    when below."""
    weights_refresh_steps: Annotated[int, Integer(0, 1000)] = 1
    """Steps between fetches of newer weights in an unroll; 0: only between unrolls. Must be 1 with actors.inference: Central.
    """
    publish_interval: Annotated[int, Integer(1)] = 1
    """Updates between two versions of the weights sent to the actors."""
    correct_off_policy: Flag = True
    """false sets every importance weight of V-trace to 1, to show the cost of policy lag."""
    prefetch_batches: Annotated[int, Integer(1, 64)] = 1
    """Batches that the learner requests ahead. 0, not with IMPALA: actors and learner wait for each other."""
    unroll_queue: UnrollQueue = Field(default_factory=UnrollQueue)
    """Where unrolls wait for the learner."""


def updates_in_flight(parameters: ImpalaParameters, actors: int, envs_per_actor: int, fill_percent: int = 100) -> int:
    """Updates that pass, at most, between an actor's step and the learner's update with it, while unrolls wait in a queue filled
    to ``fill_percent``, travel from so many actors and are prefetched."""
    queued = parameters.unroll_queue.capacity * fill_percent // 100
    unrolls = queued + actors * credits_per_actor(envs_per_actor) + parameters.prefetch_batches * parameters.batch_size
    return math.ceil(unrolls * parameters.updates_per_batch / parameters.batch_size) + parameters.publish_interval

"""The parameters of IMPALA, an actor-critic on unrolls from many actors, corrected by V-trace (Espeholt et al., 2018); and how
old experience can be when its learner sees it: arithmetic that the rules and the documentation share."""

import math
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class InFlight:
    """Everything between an actor's step and the learner's update: unrolls that wait, travel and are prefetched."""

    queued_unrolls: int
    actors: int
    credits: int
    batch_size: int
    prefetch_batches: int
    updates_per_batch: int
    publish_interval: int

    @property
    def updates(self) -> int:
        """Updates that pass, at most, while an unroll makes its way through all of it."""
        unrolls = self.queued_unrolls + self.actors * self.credits + self.prefetch_batches * self.batch_size
        return math.ceil(unrolls * self.updates_per_batch / self.batch_size) + self.publish_interval

    def __str__(self) -> str:
        return (
            f"{self.updates} = ((queue {self.queued_unrolls} + actors {self.actors} * {self.credits} on the way) / batchSize "
            f"{self.batch_size} + prefetchBatches {self.prefetch_batches}) * {self.updates_per_batch} updates a batch, rounded "
            f"up, + publishInterval {self.publish_interval}"
        )


def in_flight(parameters: ImpalaParameters, actors: int, envs_per_actor: int, fill_percent: int = 100) -> InFlight:
    """What is in flight with so many actors when the queue is filled to ``fill_percent``."""
    return InFlight(
        queued_unrolls=parameters.unroll_queue.capacity * fill_percent // 100,
        actors=actors,
        credits=credits_per_actor(envs_per_actor),
        batch_size=parameters.batch_size,
        prefetch_batches=parameters.prefetch_batches,
        updates_per_batch=parameters.updates_per_batch,
        publish_interval=parameters.publish_interval,
    )

"""How old experience can be when an IMPALA learner sees it: arithmetic that the rules and the documentation share."""

import math
from dataclasses import dataclass

from rljob.algorithms.impala.parameters import ImpalaParameters
from rljob.api.roles import credits_per_actor


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

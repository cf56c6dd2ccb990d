"""What an algorithm of one's own that learns from unrolls is set by."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rljob.api.impala import UnrollQueue
from rljob.api.learner_parameters import LearnerParameterSet
from rljob.api.types import Integer


class UnrollParameterSet(LearnerParameterSet):
    """Parameters of an ``UnrollAlgorithm``, which learns from unrolls, once or in several passes, out of the learner's queue."""

    batch_size: Annotated[int, Integer(1, 4096)] = 32
    """Unrolls that make one batch."""
    unroll_length: Annotated[int, Integer(1, 1000)] = 20
    """Steps of one environment that are sent and learned from as one sequence."""
    prefetch_batches: Annotated[int, Integer(1, 64)] = 2
    """Batches the learner asks for ahead of use."""
    publish_interval: Annotated[int, Integer(1)] = 1
    """Updates between two versions of the weights sent to the actors."""
    unroll_queue: UnrollQueue = Field(
        default_factory=lambda known: UnrollQueue(capacity=max(64, 2 * known.get("batch_size", 1)))
    )
    """Where unrolls wait for the learner, and how old they may become; capacity is at least batchSize."""

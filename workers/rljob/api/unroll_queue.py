"""``spec.algorithm.impala.unrollQueue``: the first-in-first-out queue of unrolls in front of an IMPALA learner."""

from __future__ import annotations

from typing import Annotated, Literal

from rljob.api.types import APIModel, Integer


class UnrollQueue(APIModel):
    """The queue of unrolls in the learner; its bound is a budget for staleness."""

    capacity: Annotated[int, Integer(1, 1_000_000)] = 64
    """Unrolls that may wait; at least one batch."""
    overflow: Literal["Block", "DropOldest"] = "Block"
    """What happens when it is full. Block: actors wait. DropOldest: the oldest unroll is dropped, and counted."""
    max_policy_lag_updates: Annotated[int, Integer(1, 10**9)] = 50
    """Unrolls with weights older than so many updates are discarded. Unset, the time that weights travel is added, to at most
    1000."""

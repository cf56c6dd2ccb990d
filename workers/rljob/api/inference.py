"""``spec.inference``: who computes the actions where actors do not do it themselves (``actors.inference: Central``)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rljob.api.mutability import WHILE_SUSPENDED
from rljob.api.pods import RoleSpec
from rljob.api.roles import Accelerator
from rljob.api.types import Integer


class InferenceSpec(RoleSpec):
    """The server that answers observations with actions, in batches from many actors (as in SEED RL)."""

    replicas: Annotated[int, Integer(0, 1000), WHILE_SUSPENDED] = 0
    """Servers of their own, each a pod or process; 0 puts the server into the learner."""
    accelerator: Annotated[Accelerator, WHILE_SUSPENDED] = Field(default_factory=Accelerator)
    """The device that each server of its own computes on; one in the learner uses the learner's."""
    max_batch_size: Annotated[int, Integer(1, 65_536), WHILE_SUSPENDED] = 64
    """Observations computed together at most."""
    max_wait_milliseconds: Annotated[int, Integer(0, 10_000), WHILE_SUSPENDED] = 2
    """Longest that an observation waits for others before it is computed."""
    timeout_seconds: Annotated[int, Integer(1, 3600), WHILE_SUSPENDED] = 30
    """Longest that an actor waits for an answer, once it has had one, before it gives up and restarts."""

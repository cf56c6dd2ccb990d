"""``spec.autoscaling``: how the number of actors follows the learner."""

from typing import Annotated, Literal

from pydantic import Field

from rljob.api.types import APIModel, Integer

GUARD_PERCENT = 80
"""The guard on policy lag, in percent of the limit beyond which unrolls are discarded, for their lag is then seen no more."""
Replicas = Annotated[int, Integer(0, 100_000)]


class ScalingTarget(APIModel):
    """What the controller steers towards."""

    queue_utilization_percent: Annotated[int, Integer(1, 99)] = 50
    """Fill of the learner's queue of unrolls that is steered to, for IMPALA; ApeXDQN is steered by its samplesPerInsert."""


class ScalingGuards(APIModel):
    """What forbids growth."""

    max_policy_lag_updates: Annotated[int, Integer(1)] = 400
    """Policy lag (95th percentile) above which actors are taken away."""


class AutoscalingSpec(APIModel):
    """The number of actors over time."""

    mode: Literal["Internal", "External", "Disabled"] = "Disabled"
    """Internal: the controller decides. External: something else writes /scale. Disabled: actors.replicas stays."""
    min_replicas: Replicas = 1
    """The fewest actors that the autoscaler asks for."""
    max_replicas: Replicas = 100
    """The most actors that the autoscaler asks for."""
    target: ScalingTarget = Field(default_factory=ScalingTarget)
    """What is aimed for."""
    guards: ScalingGuards = Field(default_factory=ScalingGuards)
    """What forbids that the number of actors grows."""
    pause: Literal["None", "ScaleIn", "ScaleOut", "All"] = "None"
    """Stop deciding for a while, in one direction or both."""

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
    """Target fill of IMPALA's queue of unrolls. ApeXDQN follows its samplesPerInsert."""


class ScalingGuards(APIModel):
    """What forbids growth."""

    max_policy_lag_updates: Annotated[int, Integer(1)] = 400
    """Policy lag (95th percentile) above which actors are removed."""


class AutoscalingSpec(APIModel):
    """The number of actors over time."""

    mode: Literal["Internal", "External", "Disabled"] = "Disabled"
    """Who sets the number of actors. Internal: the controller. External: a client of /scale. Disabled: actors.replicas."""
    min_replicas: Replicas = 1
    """Fewest actors."""
    max_replicas: Replicas = 100
    """Most actors."""
    target: ScalingTarget = Field(default_factory=ScalingTarget)
    """What the autoscaler steers to."""
    guards: ScalingGuards = Field(default_factory=ScalingGuards)
    """What limits growth of the number."""
    pause: Literal["None", "ScaleIn", "ScaleOut", "All"] = "None"
    """Stop scaling in one direction or both."""

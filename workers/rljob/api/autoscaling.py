"""``spec.autoscaling``: how the number of actors follows the learner."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rljob.api.types import APIModel, Integer, Seconds

Percent = Annotated[int, Integer(0, 100)]
Replicas = Annotated[int, Integer(0, 100_000)]


class ScalingPolicy(APIModel):
    """One limit on how fast the number changes, as in the HorizontalPodAutoscaler."""

    type: Literal["Percent", "Pods"]
    """What value counts: Pods are actors, Percent is a share of those that there are."""
    value: Annotated[int, Integer(1, 100_000)]
    """How much may change within the period."""
    period_seconds: Annotated[int, Integer(1, 1800)]
    """How long the period is that a change is counted over."""


class ScalingRules(APIModel):
    """How fast the number may change in one direction."""

    stabilization_window_seconds: Annotated[int, Integer(0, 3600)] = 0
    """Act on the most cautious recommendation of this window."""
    select_policy: Literal["Max", "Min", "Disabled"] = "Max"
    """Which of the policies counts; Disabled forbids the direction."""
    policies: list[ScalingPolicy] = Field(default_factory=list, max_length=8)
    """The limits; an empty list sets none."""


class ScaleUpRules(ScalingRules):
    """How fast the number may grow. What is left out takes its own default, whatever is given beside it."""

    policies: list[ScalingPolicy] = Field(
        default_factory=lambda: [
            ScalingPolicy(type="Percent", value=100, period_seconds=15),
            ScalingPolicy(type="Pods", value=4, period_seconds=15),
        ],
        max_length=8,
    )
    """The limits; an empty list sets none."""


class ScaleDownRules(ScalingRules):
    """How fast the number may shrink. What is left out takes its own default, whatever is given beside it."""

    stabilization_window_seconds: Annotated[int, Integer(0, 3600)] = 180
    """Act on the most cautious recommendation of this window."""
    select_policy: Literal["Max", "Min", "Disabled"] = "Min"
    """Which of the policies counts; Disabled forbids the direction."""
    policies: list[ScalingPolicy] = Field(
        default_factory=lambda: [ScalingPolicy(type="Percent", value=20, period_seconds=15)], max_length=8
    )
    """The limits; an empty list sets none."""


class ScalingBehavior(APIModel):
    """How fast the number may change."""

    scale_up: ScaleUpRules = Field(default_factory=ScaleUpRules)
    """How fast the number of actors may grow."""
    scale_down: ScaleDownRules = Field(default_factory=ScaleDownRules)
    """How fast the number of actors may fall."""


class ScalingTarget(APIModel):
    """What the controller steers towards."""

    queue_utilization_percent: Annotated[int, Integer(1, 99)] = 50
    """Fill of the learner's queue of unrolls that is steered to, for IMPALA; ApeXDQN is steered by its samplesPerInsert."""


class ScalingGuards(APIModel):
    """What forbids growth."""

    max_policy_lag_updates: Annotated[int, Integer(1)] = 400
    """Policy lag (95th percentile) above which actors are taken away."""
    min_marginal_gain_percent: Percent = 10
    """Growth that brings less than this share of its nominal rate is taken back; 0: never."""


class Fallback(APIModel):
    """What to do when figures stay away."""

    after_seconds: Seconds = 600
    """How long figures have been missing before the number changes."""
    replicas: Replicas = 1
    """The number of actors then, within minReplicas and maxReplicas."""
    behavior: Literal["Static", "CurrentReplicasIfHigher", "CurrentReplicasIfLower"] = "CurrentReplicasIfHigher"
    """Whether the present number may stay."""


class MissingMetrics(APIModel):
    """What happens when the learner's figures are missing."""

    stale_after_seconds: Seconds = 45
    """Older figures are taken as missing, never as zero."""
    action: Literal["Hold", "Fallback"] = "Hold"
    """Keep the number, or fall back."""
    fallback: Fallback = Field(default_factory=Fallback)
    """To how many actors, and when, action Fallback goes."""


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
    sample_period_seconds: Seconds = 15
    """How long the controller waits between two decisions."""
    rate_window_seconds: Seconds = 60
    """Time over which rates are averaged."""
    behavior: ScalingBehavior = Field(default_factory=ScalingBehavior)
    """How fast the number may change."""
    guards: ScalingGuards = Field(default_factory=ScalingGuards)
    """What forbids that the number of actors grows."""
    missing_metrics: MissingMetrics = Field(default_factory=MissingMetrics)
    """What happens without figures."""
    pause: Literal["None", "ScaleIn", "ScaleOut", "All"] = "None"
    """Stop deciding for a while, in one direction or both."""

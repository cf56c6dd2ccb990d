"""What the autoscaler is given, and what it answers: frozen values, shared with its callers."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DECISION_SECONDS: Final = 15.0
"""Between two decisions, as a HorizontalPodAutoscaler's; a learner's figures are means of a few seconds."""


@dataclass(frozen=True, slots=True)
class ScalingSample:
    """The learner's figures over its last few seconds. ``items`` are what an actor delivers: unrolls (IMPALA) or
    transitions (Ape-X).

    Attributes:
        taken_seconds: when they were read, on the controller's clock (Unix time).
        wait_fraction: share of time the learner waited for data, 0..1.
        blocked_fraction: share of time an actor was held back, mean over actors, 0..1.
        consumption_per_second: items the learner digests. Ape-X: sampled transitions per second / samples per insert.
        production_per_second: items all actors deliver.
        depth_batches, bound_batches: the queue (IMPALA) or the rate limiter's credit (Ape-X), and its bound.
        items_per_batch: items that one batch uses up. IMPALA: the batch size; Ape-X: batch size / samples per insert.
        policy_lag_updates_p95: 95th percentile of the policy lag; None where it is not reported.
        lag_limit_updates: the lag above which the learner discards what comes; None where it discards nothing.
        learner_advancing: whether the learner has made updates since the sample before.
    """

    taken_seconds: float
    wait_fraction: float
    blocked_fraction: float
    consumption_per_second: float
    production_per_second: float
    depth_batches: float
    bound_batches: float
    items_per_batch: float
    policy_lag_updates_p95: float | None = None
    lag_limit_updates: float | None = None
    learner_advancing: bool = True


@dataclass(frozen=True, slots=True)
class Supply:
    """The actors that exist and what the user asks for.

    Attributes:
        ready: actors that play. pending: actors on their way (created, not yet ready). draining: actors asked to end.
        unschedulable_seconds: for how long actors have been waiting for a place or for quota; 0 if none is.
        learner_started_seconds: when the present learner process started (Unix time); None while there is none.
        requested_replicas: ``spec.actors.replicas`` now; where to begin when nothing is remembered.
    """

    ready: int
    pending: int
    draining: int
    unschedulable_seconds: float
    learner_started_seconds: float | None
    requested_replicas: int


class LimitedBy(StrEnum):
    """The rule that kept the desired number from the recommended one; empty when none did."""

    NOTHING = ""
    MAX_REPLICAS = "MaxReplicas"
    MIN_REPLICAS = "MinReplicas"
    SCALE_UP_POLICY = "ScaleUpPolicy"
    SCALE_DOWN_POLICY = "ScaleDownPolicy"
    SCALE_DOWN_STABILIZATION = "ScaleDownStabilization"
    UNSCHEDULABLE = "Unschedulable"
    POLICY_LAG = "PolicyLag"
    GAIN = "Gain"
    PAUSE = "Pause"

    @property
    def reason(self) -> str:
        """The reason of condition ScalingLimited; the words are the HorizontalPodAutoscaler's where it has one."""
        return _REASONS[self]


_REASONS = {
    LimitedBy.NOTHING: "DesiredWithinRange",
    LimitedBy.MAX_REPLICAS: "TooManyReplicas",
    LimitedBy.MIN_REPLICAS: "TooFewReplicas",
    LimitedBy.SCALE_UP_POLICY: "ScaleUpLimit",
    LimitedBy.SCALE_DOWN_POLICY: "ScaleDownLimit",
    LimitedBy.SCALE_DOWN_STABILIZATION: "ScaleDownStabilized",
    LimitedBy.UNSCHEDULABLE: "Unschedulable",
    LimitedBy.POLICY_LAG: "PolicyLag",
    LimitedBy.GAIN: "DiminishingReturns",
    LimitedBy.PAUSE: "Paused",
}


class ActiveReason(StrEnum):
    """Why condition ScalingActive is what it is; only the first means True."""

    VALID_METRIC_FOUND = "ValidMetricFound"
    STALE_METRICS = "StaleMetrics"
    SCALING_DISABLED = "ScalingDisabled"
    WARMING_UP = "WarmingUp"
    PAUSED = "Paused"

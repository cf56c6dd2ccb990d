"""What the autoscaler is given, what it answers, and all that it remembers from one call to the next: frozen values.

The memory is kept in the job's status, so a restart loses nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from pydantic import ConfigDict, TypeAdapter
from pydantic.alias_generators import to_camel

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


Timed = tuple[tuple[float, int], ...]
"""(Unix time, number of actors), oldest first."""

MOST_ENTRIES: Final = 24
"""Longest history; beyond it the two oldest entries become one."""

_CAMEL: Final = ConfigDict(
    alias_generator=to_camel, validate_by_alias=True, validate_by_name=True, extra="ignore", allow_inf_nan=False
)


@dataclass(frozen=True, slots=True)
class Sums:
    """What the samples said, added up with exponential forgetting; ``weight`` counts them.

    ``consumed / busy`` is the learner's capacity, ``arrived / free_actors`` an actor's rate (items per second).
    """

    __pydantic_config__ = _CAMEL

    weight: float = 0.0
    consumed: float = 0.0
    busy: float = 0.0
    arrived: float = 0.0
    produced: float = 0.0
    free_actors: float = 0.0

    def plus(self, entry: "Sums", keep: float) -> "Sums":
        """These sums times ``keep``, plus one entry."""
        return Sums(
            keep * self.weight + entry.weight,
            keep * self.consumed + entry.consumed,
            keep * self.busy + entry.busy,
            keep * self.arrived + entry.arrived,
            keep * self.produced + entry.produced,
            keep * self.free_actors + entry.free_actors,
        )


@dataclass(frozen=True, slots=True)
class RateMemory:
    """The rates over the rate window and over the trim's time constant, how noisy they are, and the latest sample.

    Attributes:
        window, steady: the sums over the short and the long time.
        deviation: mean deviation of single samples from the estimate, relative.
        jumped: the latest sample taken in contradicted a settled estimate; it may have caught the jump half-way.
        loss_mean, loss_square: of the logarithm of production / arrivals.
        figure_variance: relative variance of one figure's error, from how far production and arrivals are apart; 0.1 squared
            until it is known better.
        updated_seconds: when the sums last took a sample in. taken_seconds, ready, depth_items: the latest sample.
    """

    __pydantic_config__ = _CAMEL

    window: Sums = field(default_factory=Sums)
    steady: Sums = field(default_factory=Sums)
    deviation: float = 0.1
    jumped: bool = False
    loss_mean: float = 0.0
    loss_square: float = 0.0
    figure_variance: float = 0.01
    updated_seconds: float | None = None
    taken_seconds: float | None = None
    ready: int = 0
    depth_items: float = 0.0


@dataclass(frozen=True, slots=True)
class GuardMemory:
    """A growth that is on trial, and the number of actors that an earlier one was taken back to.

    Attributes:
        actors: how many were wanted before the growth on trial; None where none is. ready, arrived_per_second, free_actors:
            what there was then. grown_since_seconds: when enough of the new ones had come.
        lag_share: the mean policy lag, as a share of what the job allows.
        ceiling, ceiling_by: the most actors, and the ``LimitedBy`` that found it; in force until ``until_seconds``, remembered
            for as long again. hold_seconds: how long it was to be in force when it was found.
    """

    __pydantic_config__ = _CAMEL

    actors: int | None = None
    ready: int = 0
    arrived_per_second: float = 0.0
    free_actors: float = 0.0
    grown_since_seconds: float | None = None
    lag_share: float | None = None
    ceiling: int | None = None
    ceiling_by: str = ""
    until_seconds: float = 0.0
    hold_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class AutoscalingMemory:
    """A few dozen numbers. Times are Unix times on the controller's clock.

    Attributes:
        desired: the number of actors decided last.
        requested: ``spec.actors.replicas`` as seen last; a change of it is a user's request.
        seen_seconds: the latest call. looked_seconds: the one before it. decided_seconds: the latest decision.
        watching_since_seconds: since when nothing has been missed; no shrinking before one stabilization window.
        learner_started_seconds, advancing_since_seconds: for the warm-up after a (re)start.
        rates, integral, guards: the law's and the guards' state.
        highest: recommendations that the stabilization window still needs.
        recommended, limited_by, active, active_message, last_decision: the latest answer, repeated between decisions.
    """

    __pydantic_config__ = _CAMEL

    desired: int | None = None
    requested: int | None = None
    seen_seconds: float | None = None
    looked_seconds: float | None = None
    decided_seconds: float | None = None
    watching_since_seconds: float | None = None
    learner_started_seconds: float | None = None
    advancing_since_seconds: float | None = None
    rates: RateMemory = field(default_factory=RateMemory)
    integral: float = 0.0
    guards: GuardMemory = field(default_factory=GuardMemory)
    highest: Timed = ()
    recommended: float | None = None
    limited_by: str = ""
    active: str = "WarmingUp"
    active_message: str = ""
    last_decision: str = ""

    def to_dict(self) -> dict[str, Any]:
        """camelCase and JSON types only; `from_dict` of it is equal to this memory, to the last bit."""
        document: dict[str, Any] = _ADAPTER.dump_python(self, mode="json", by_alias=True, exclude_none=True)
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "AutoscalingMemory":
        """Read what `to_dict` wrote. Unknown keys are ignored, missing ones start anew; ValueError names a broken field."""
        return _ADAPTER.validate_python(dict(document))

    def shifted(self, seconds: float) -> "AutoscalingMemory":
        """The same memory on a clock that is ``seconds`` ahead: every age stays as it was."""
        return replace(
            self,
            seen_seconds=_later(self.seen_seconds, seconds),
            looked_seconds=_later(self.looked_seconds, seconds),
            decided_seconds=_later(self.decided_seconds, seconds),
            watching_since_seconds=_later(self.watching_since_seconds, seconds),
            advancing_since_seconds=_later(self.advancing_since_seconds, seconds),
            rates=replace(
                self.rates,
                updated_seconds=_later(self.rates.updated_seconds, seconds),
                taken_seconds=_later(self.rates.taken_seconds, seconds),
            ),
            guards=replace(
                self.guards,
                grown_since_seconds=_later(self.guards.grown_since_seconds, seconds),
                until_seconds=self.guards.until_seconds + seconds,
            ),
            highest=tuple((time + seconds, number) for time, number in self.highest),
        )


_ADAPTER: Final = TypeAdapter(AutoscalingMemory)


def _later(time: float | None, seconds: float) -> float | None:
    return None if time is None else time + seconds

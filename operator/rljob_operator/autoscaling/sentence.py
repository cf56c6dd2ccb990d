"""``lastDecision``: one sentence with the numbers from which a person recomputes the decision."""

from __future__ import annotations

from rljob.api.autoscaling import AutoscalingSpec

from rljob_operator.autoscaling.law import Match, tolerance
from rljob_operator.autoscaling.model import LimitedBy, ScalingSample

_LIMITS = {
    LimitedBy.MAX_REPLICAS: "maxReplicas",
    LimitedBy.MIN_REPLICAS: "minReplicas",
    LimitedBy.SCALE_UP_POLICY: "the policies of behavior.scaleUp",
    LimitedBy.SCALE_DOWN_POLICY: "the policies of behavior.scaleDown",
    LimitedBy.SCALE_UP_STABILIZATION: "the least wanted within behavior.scaleUp.stabilizationWindowSeconds",
    LimitedBy.SCALE_DOWN_STABILIZATION: "the most wanted within behavior.scaleDown.stabilizationWindowSeconds",
    LimitedBy.UNSCHEDULABLE: "actors that have found no place for over 60 s",
    LimitedBy.POLICY_LAG: "guards.maxPolicyLagUpdates: 10 % fewer while the lag is above it",
    LimitedBy.GAIN: "guards.minMarginalGainPercent: the last growth brought nothing, no growth for 600 s",
    LimitedBy.PAUSE: "pause",
}


def decided(
    spec: AutoscalingSpec, match: Match, sample: ScalingSample, before: int, after: int, limited_by: LimitedBy
) -> str:
    """A decision of the law: ``capacity / per actor x (1 + integral) + trim = wanted``, then what was made of it."""
    fill = min(1.0, sample.depth_batches / sample.bound_batches)
    sentence = (
        f"learner {match.rates.capacity_per_second:.4g}/s when it does not wait (waits {sample.wait_fraction:.1%}), "
        f"actor {match.rates.per_actor_per_second:.4g}/s when not blocked (blocked {sample.blocked_fraction:.1%}), "
        f"queue {fill:.0%} full: {match.rates.capacity_per_second:.4g} / {match.rates.per_actor_per_second:.4g} "
        f"x (1 {match.integral:+.4f}) {match.trim:+.2f} = {match.wanted:.2f} wanted: {before} -> {after} actors"
    )
    if limited_by is not LimitedBy.NOTHING:
        return f"{sentence}, limited by {_LIMITS[limited_by]}"
    if before == after and match.wanted != before:
        return f"{sentence}, within the tolerance of {tolerance(spec, match, before):.2f}"
    return sentence


def fell_back(spec: AutoscalingSpec, missing_seconds: float, before: int, after: int) -> str:
    """A decision without figures."""
    rule = spec.missing_metrics.fallback
    return f"no figures for {missing_seconds:.0f} s, fallback ({rule.behavior}) to {rule.replicas}: {before} -> {after} actors"


def held(current: int, why: str) -> str:
    """No decision, and why."""
    return f"held at {current} actors: {why}"

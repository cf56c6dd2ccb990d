"""``lastDecision``: one sentence with the numbers from which a person recomputes the decision."""

from rljob_operator.core.autoscaling.law import Match
from rljob_operator.core.autoscaling.limits import Calculation, Limited, ReplicaLimits
from rljob_operator.core.autoscaling.model import LimitedBy, ScalingSample

_LIMITS = {
    LimitedBy.MAX_REPLICAS: "maxReplicas, the machine or the queue",
    LimitedBy.MIN_REPLICAS: "minReplicas",
    LimitedBy.SCALE_UP_POLICY: "the most that one decision adds: as many again, or 4",
    LimitedBy.SCALE_DOWN_POLICY: "the most that one decision removes: a fifth",
    LimitedBy.SCALE_DOWN_STABILIZATION: "the most wanted within the last 180 s",
    LimitedBy.UNSCHEDULABLE: "actors without a node for over 60 s",
    LimitedBy.POLICY_LAG: "guards.maxPolicyLagUpdates: the lag was recently too high with more actors",
    LimitedBy.GAIN: "its gain: further growth has not helped",
    LimitedBy.PAUSE: "pause",
}

NO_ACTOR_PLAYS = "no actor plays, so nothing can be measured"


def decided(
    calculation: Calculation, match: Match, sample: ScalingSample, limited_by: LimitedBy, *, recommended: bool
) -> str:
    """A decision of the law: ``capacity / per actor x (1 + integral) + trim = wanted``, then what was made of it."""
    fill = min(1.0, sample.depth_batches / sample.bound_batches)
    certain = match.wanted * (1.0 - match.rates.uncertainty)
    sentence = (
        f"learner {match.rates.capacity_per_second:.4g}/s when it does not wait (waits {sample.wait_fraction:.1%}), "
        f"actor {match.rates.per_actor_per_second:.4g}/s when not blocked (blocked {sample.blocked_fraction:.1%}), "
        f"queue {fill:.0%} full: {match.rates.capacity_per_second:.6g} / {match.rates.per_actor_per_second:.6g} "
        f"x (1 {match.integral:+.6f}) {match.trim:+.4f} = {match.wanted:.4f} wanted, "
        f"at least {certain:.4f} (- {match.rates.uncertainty:.3%}), tolerance {calculation.tolerance:.4g}: "
        f"aim at {calculation.target}{_within(calculation.limits)}: {_change(calculation, recommended=recommended)}"
    )
    if limited_by is not LimitedBy.NOTHING:
        return f"{sentence}, limited by {_LIMITS[limited_by]}"
    if calculation.target == calculation.before and abs(match.wanted - calculation.before) < calculation.tolerance:
        return f"{sentence}, within the tolerance"
    return sentence


def jumped(requested_before: int, requested_replicas: int, before: int, limited: Limited) -> str:
    """A user's new number."""
    limit = "" if limited.by is LimitedBy.NOTHING else f", limited by {_LIMITS[limited.by]}"
    return f"actors.replicas changed from {requested_before} to {requested_replicas}: {before} -> {limited.number} actors{limit}"


def obeyed(requested_replicas: int, limited: Limited) -> str:
    """A sentence about a number of actors that was set from outside."""
    if limited.by is LimitedBy.NOTHING:
        return f"{limited.number} actors as asked for"
    return f"{limited.number} actors of {requested_replicas} asked for, limited by {_LIMITS[limited.by]}"


def _change(calculation: Calculation, *, recommended: bool) -> str:
    if recommended:
        return f"{calculation.after} recommended beside {calculation.before}"
    return f"{calculation.before} -> {calculation.after} actors"


def _within(limits: ReplicaLimits) -> str:
    """The limits that there are, in the order in which they act."""
    parts = []
    if limits.min_replicas is not None:
        parts.append(f"bounds {limits.min_replicas} to {limits.max_replicas}")
    if limits.most_wanted is not None:
        parts.append(f"window {limits.most_wanted}")
    if limits.guard_most is not None:
        parts.append(f"guard {limits.guard} at most {limits.guard_most}")
    if limits.policy_least is not None:
        parts.append(f"steps {limits.policy_least} to {limits.policy_most}")
    if limits.pause != "None":
        parts.append(f"pause {limits.pause}")
    return f" within {', '.join(parts)}" if parts else ""

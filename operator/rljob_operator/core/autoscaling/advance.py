"""`advance`: from the figures and the actors that exist to how many there should be. Pure: no I/O, no clock, no randomness."""

from dataclasses import dataclass, replace

from rljob.api.roles import AutoscalingSpec
from rljob.api.status import ScalingCalculation

from rljob_operator.core.autoscaling import guards, law
from rljob_operator.core.autoscaling.limits import Limited, bounded, calculated, through, with_wanted
from rljob_operator.core.autoscaling.model import (
    DECISION_SECONDS,
    ActiveReason,
    AutoscalingMemory,
    GuardMemory,
    LimitedBy,
    ScalingSample,
    Supply,
)
from rljob_operator.core.autoscaling.warmup import attended, fault, on_this_clock, warming_up


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The answer.

    Attributes:
        desired: how many actors there should be.
        recommended: None before there are figures. Internal: what the law alone asks for, not rounded. External: the number to
            ask for.
        limited_by: the rule between the two; External: the bound that the number asked for was brought within.
        last_decision: one sentence from whose numbers the decision can be recomputed by hand.
        is_new: whether ``last_decision`` was made in this call. It is repeated between decisions.
        calculation: of a new decision, all its numbers; None where the number was held or a user changed it.
        memory: to be handed back at the next call.
    """

    desired: int
    recommended: float | None
    limited_by: LimitedBy
    last_decision: str
    is_new: bool
    calculation: ScalingCalculation | None
    memory: AutoscalingMemory


def advance(
    spec: AutoscalingSpec,
    memory: AutoscalingMemory,
    sample: ScalingSample | None,
    supply: Supply,
    now_seconds: float,
) -> Recommendation:
    """How many actors there should be now, or, with mode External, should be asked for.

    To be called as often as one likes: decisions are made every ``DECISION_SECONDS``, and between them the answer is the last
    one, save that a user's change of ``spec.actors.replicas`` and of the bounds counts at once.

    Args:
        spec: ``spec.autoscaling``, of mode Internal or External.
        memory: of the call before; ``AutoscalingMemory()`` at first.
        sample: the learner's latest figures, None if there are none.
        supply: the actors.
        now_seconds: Unix time. It may jump; ages are then counted as if it had not.
    """
    memory = on_this_clock(memory, now_seconds)
    before = memory
    memory = _with_requested_replicas(spec, memory, supply, now_seconds)
    missing = fault(sample, now_seconds)
    memory = attended(memory, None if missing else sample, supply, now_seconds)
    warming = warming_up(memory, now_seconds)
    if not _is_due(memory, warming, now_seconds):
        return _answer(spec, memory, None, is_new=memory.last_decision != before.last_decision)
    if sample is None or missing:  # looked for again at the next call, not a whole period later
        return _answer(spec, _told(spec, memory, ActiveReason.STALE_METRICS, missing), None)
    memory = replace(memory, decided_seconds=now_seconds)
    is_new = memory.rates.taken_seconds is None or sample.taken_seconds > memory.rates.taken_seconds
    if sample.learner_advancing:
        memory = replace(memory, rates=law.observe(memory.rates, sample, supply.ready))
    if memory.desired == 0 and not sample.learner_advancing:
        return _answer(spec, _with_a_first_actor(spec, memory), None)
    if warming:
        return _answer(spec, _told(spec, memory, ActiveReason.WARMING_UP, warming), None)
    if not sample.learner_advancing:
        return _answer(spec, _told(spec, memory, ActiveReason.STALE_METRICS, "the learner does not advance"), None)
    if spec.pause == "All":
        return _answer(spec, _told(spec, memory, ActiveReason.PAUSED, "autoscaling.pause is All"), None)
    return _answer(spec, *_by_law(spec, memory, sample, supply, is_new, now_seconds))


_Decided = tuple[AutoscalingMemory, ScalingCalculation | None]


def _by_law(
    spec: AutoscalingSpec,
    memory: AutoscalingMemory,
    sample: ScalingSample,
    supply: Supply,
    is_new: bool,
    now_seconds: float,
) -> _Decided:
    current = memory.desired or 0
    found = law.rates(memory.rates)
    if found is None:
        missing = "the learner has consumed nothing measurable yet"
        return _told(spec, memory, ActiveReason.STALE_METRICS, missing), None
    match = law.match(spec, found, sample, memory.integral)
    memory = replace(memory, recommended=match.wanted)
    if is_new:
        learned = guards.learned(spec, memory.guards, memory.rates, sample, supply, current, now_seconds)
        memory = replace(memory, guards=learned)
    target = law.rounded(match, current)
    memory = with_wanted(memory, bounded(spec, Limited(target)).number, now_seconds)
    calculation = calculated(spec, memory, supply, target, match, now_seconds)
    limited = through(calculation)
    calculation = calculation.model_copy(update={"after": limited.number})
    if spec.mode == "External":
        memory = replace(memory, recommended=float(limited.number))
    else:
        memory = replace(memory, desired=limited.number, limited_by=limited.by)
    is_at_rest = found.steady and limited == Limited(current) and supply.pending == 0
    if is_new and is_at_rest:
        memory = replace(memory, integral=law.integrated(spec, sample, memory.integral))
    if limited.number > current:
        memory = replace(memory, guards=guards.growing(memory.guards, memory.rates, supply, current))
    decision_text = _decided(calculation, match, sample, limited.by, recommended=spec.mode == "External")
    memory = replace(memory, active=ActiveReason.VALID_METRIC_FOUND, active_message="", last_decision=decision_text)
    return memory, calculation


def _with_a_first_actor(spec: AutoscalingSpec, memory: AutoscalingMemory) -> AutoscalingMemory:
    """One actor where there is none: a learner that gets nothing makes no figures, so the law would stay at 0 for ever.

    Growth that is forbidden stays forbidden.
    """
    if spec.mode == "External":
        return replace(_told(spec, memory, ActiveReason.STALE_METRICS, _NO_ACTOR_PLAYS), recommended=1.0)
    if spec.pause in ("ScaleOut", "All") or spec.max_replicas == 0:
        return _told(spec, memory, ActiveReason.STALE_METRICS, _NO_ACTOR_PLAYS)
    return replace(
        memory,
        desired=1,
        limited_by=LimitedBy.NOTHING,
        active=ActiveReason.STALE_METRICS,
        active_message=_NO_ACTOR_PLAYS,
        last_decision=f"{_NO_ACTOR_PLAYS}: 0 -> 1 actors, to begin with",
    )


def _with_requested_replicas(
    spec: AutoscalingSpec, memory: AutoscalingMemory, supply: Supply, now_seconds: float
) -> AutoscalingMemory:
    """The number to start from, a user's new number, and the bounds as they are now."""
    desired, requested_replicas, requested_before = memory.desired, supply.requested_replicas, memory.requested
    memory = replace(memory, requested=requested_replicas)
    if spec.mode == "External":
        limited = bounded(spec, Limited(requested_replicas))
        return replace(memory, desired=limited.number, limited_by=limited.by)
    if desired is None:
        desired = requested_replicas
    elif requested_before is not None and requested_replicas != requested_before:
        # give it one stabilization window; older recommendations knew nothing of it
        memory = replace(memory, highest=((now_seconds, requested_replicas),), integral=0.0, guards=GuardMemory())
        limited = bounded(spec, Limited(requested_replicas))
        decision_text = _jumped(requested_before, requested_replicas, desired, limited)
        return replace(memory, desired=limited.number, limited_by=limited.by, last_decision=decision_text)
    return replace(memory, desired=bounded(spec, Limited(desired)).number)


def _is_due(memory: AutoscalingMemory, warming: str, now_seconds: float) -> bool:
    """Every ``DECISION_SECONDS``, and at the end of the warm-up."""
    decided = memory.decided_seconds
    if decided is None or now_seconds - decided >= DECISION_SECONDS:
        return True
    return not warming and memory.active == ActiveReason.WARMING_UP


def _told(spec: AutoscalingSpec, memory: AutoscalingMemory, active: ActiveReason, message: str) -> AutoscalingMemory:
    """No decision: the number stays, and the status says why."""
    if spec.mode == "External":  # the number is set from outside, and so is what limits it
        return replace(
            memory, active=active, active_message=message, last_decision=f"nothing new to recommend: {message}"
        )
    decision_text = f"held at {memory.desired or 0} actors: {message}"
    return replace(
        memory, limited_by=LimitedBy.NOTHING, active=active, active_message=message, last_decision=decision_text
    )


def _answer(
    spec: AutoscalingSpec, memory: AutoscalingMemory, calculation: ScalingCalculation | None, *, is_new: bool = True
) -> Recommendation:
    limited_by = LimitedBy(memory.limited_by)
    desired, decision_text = memory.desired or 0, memory.last_decision
    if spec.mode == "External":
        decision_text = f"{_obeyed(memory.requested or 0, Limited(desired, limited_by))}; {decision_text}"
    return Recommendation(
        desired=desired,
        recommended=memory.recommended,
        limited_by=limited_by,
        last_decision=decision_text,
        is_new=is_new,
        calculation=calculation,
        memory=memory,
    )


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

_NO_ACTOR_PLAYS = "no actor plays, so nothing can be measured"


def _decided(
    calculation: ScalingCalculation,
    match: law.Match,
    sample: ScalingSample,
    limited_by: LimitedBy,
    *,
    recommended: bool,
) -> str:
    """``lastDecision``: one sentence with the numbers from which a person recomputes the decision, ``capacity / per actor x
    (1 + integral) + trim = wanted``, and what was made of it."""
    fill = min(1.0, sample.depth_batches / sample.bound_batches)
    certain = match.wanted * (1.0 - match.rates.uncertainty)
    sentence = (
        f"learner {match.rates.capacity_per_second:.4g}/s when it does not wait (waits {sample.wait_fraction:.1%}), "
        f"actor {match.rates.per_actor_per_second:.4g}/s when not blocked (blocked {sample.blocked_fraction:.1%}), "
        f"queue {fill:.0%} full: {match.rates.capacity_per_second:.6g} / {match.rates.per_actor_per_second:.6g} "
        f"x (1 {match.integral:+.6f}) {match.trim:+.4f} = {match.wanted:.4f} wanted, "
        f"at least {certain:.4f} (- {match.rates.uncertainty:.3%}), tolerance {calculation.tolerance:.4g}: "
        f"aim at {calculation.target}{_within(calculation)}: {_change(calculation, recommended=recommended)}"
    )
    if limited_by is not LimitedBy.NOTHING:
        return f"{sentence}, limited by {_LIMITS[limited_by]}"
    if calculation.target == calculation.before and abs(match.wanted - calculation.before) < (
        calculation.tolerance or 0.0
    ):
        return f"{sentence}, within the tolerance"
    return sentence


def _jumped(requested_before: int, requested_replicas: int, before: int, limited: Limited) -> str:
    """A user's new number."""
    limit = "" if limited.by is LimitedBy.NOTHING else f", limited by {_LIMITS[limited.by]}"
    return f"actors.replicas changed from {requested_before} to {requested_replicas}: {before} -> {limited.number} actors{limit}"


def _obeyed(requested_replicas: int, limited: Limited) -> str:
    """A sentence about a number of actors that was set from outside."""
    if limited.by is LimitedBy.NOTHING:
        return f"{limited.number} actors as asked for"
    return f"{limited.number} actors of {requested_replicas} asked for, limited by {_LIMITS[limited.by]}"


def _change(calculation: ScalingCalculation, *, recommended: bool) -> str:
    if recommended:
        return f"{calculation.after} recommended beside {calculation.before}"
    return f"{calculation.before} -> {calculation.after} actors"


def _within(limits: ScalingCalculation) -> str:
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

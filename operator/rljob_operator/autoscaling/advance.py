"""`advance`: from the figures and the actors that exist to how many there should be. Pure: no I/O, no clock, no randomness."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from rljob.api.autoscaling import AutoscalingSpec

from rljob_operator.autoscaling import behavior, guards, law, sentence
from rljob_operator.autoscaling.fallback import fallback
from rljob_operator.autoscaling.memory import AutoscalingMemory
from rljob_operator.autoscaling.model import (
    ActiveReason,
    LimitedBy,
    Recommendation,
    ScalingCondition,
    ScalingSample,
    Supply,
)
from rljob_operator.autoscaling.rates import observe, rates
from rljob_operator.autoscaling.samples import fault
from rljob_operator.autoscaling.warmup import attended, on_this_clock, warming_up


def advance(
    spec: AutoscalingSpec,
    memory: AutoscalingMemory,
    sample: ScalingSample | None,
    supply: Supply,
    now_seconds: float,
) -> Recommendation:
    """How many actors there should be now.

    To be called as often as one likes: decisions are made every ``samplePeriodSeconds``, and between them the answer is the last
    one, save that a user's change of ``spec.actors.replicas`` and of the bounds counts at once.

    Args:
        spec: ``spec.autoscaling``.
        memory: of the call before; ``AutoscalingMemory()`` at first.
        sample: the learner's latest figures, None if there are none.
        supply: the actors.
        now_seconds: Unix time. It may jump; ages are then counted as if it had not.
    """
    memory = on_this_clock(spec, memory, now_seconds)
    memory = _with_wish(spec, memory, supply, now_seconds)
    if spec.mode == "Disabled":
        return _answer(spec, _told(memory, ActiveReason.SCALING_DISABLED, "autoscaling.mode is Disabled"))
    missing = fault(sample, now_seconds, spec.missing_metrics.stale_after_seconds)
    memory = attended(memory, None if missing else sample, supply, now_seconds)
    warming = warming_up(spec, memory, now_seconds)
    if not _is_due(spec, memory, warming, now_seconds):
        return _answer(spec, memory)
    memory = replace(memory, decided_seconds=now_seconds)
    if sample is None or missing:
        return _answer(spec, _without_figures(spec, memory, supply, missing, now_seconds))
    memory = replace(memory, missing_since_seconds=None)
    is_new = memory.rates.taken_seconds is None or sample.taken_seconds > memory.rates.taken_seconds
    if sample.learner_advancing:
        memory = replace(memory, rates=observe(spec, memory.rates, sample, supply.ready))
    if warming:
        return _answer(spec, _told(memory, ActiveReason.WARMING_UP, warming))
    if not sample.learner_advancing:
        return _answer(spec, _told(memory, ActiveReason.STALE_METRICS, "the learner does not advance"))
    if spec.pause == "All":
        return _answer(spec, _told(memory, ActiveReason.PAUSED, "autoscaling.pause is All"))
    return _answer(spec, _by_law(spec, memory, sample, supply, is_new, now_seconds))


@dataclass(frozen=True, slots=True)
class _Limited:
    """A number on its way through the limits and the last of them that changed it."""

    number: int
    by: LimitedBy = LimitedBy.NOTHING

    def to(self, number: int, by: LimitedBy) -> _Limited:
        return self if number == self.number else _Limited(number, by)


def _by_law(
    spec: AutoscalingSpec,
    memory: AutoscalingMemory,
    sample: ScalingSample,
    supply: Supply,
    is_new: bool,
    now_seconds: float,
) -> AutoscalingMemory:
    current = memory.desired or 0
    found = rates(spec, memory.rates)
    if found is None:
        return _told(memory, ActiveReason.STALE_METRICS, "the learner has digested nothing yet that could be measured")
    match = law.match(spec, found, sample, memory.integral)
    memory = replace(memory, recommended=match.wanted)
    if is_new:
        memory = replace(memory, gain=guards.judged(spec, memory.gain, memory.rates, sample, supply, now_seconds))
    wanted = law.rounded(spec, match, current)
    memory, limited = _apply(spec, memory, sample, supply, wanted, now_seconds)
    is_at_rest = found.steady and limited == _Limited(current) and supply.pending == 0
    if is_new and is_at_rest:
        memory = replace(memory, integral=law.integrated(spec, sample, memory.integral))
    if limited.number > current:
        memory = replace(memory, gain=guards.growing(memory.gain, memory.rates, supply))
    return replace(
        memory,
        limited_by=limited.by,
        active=ActiveReason.VALID_METRIC_FOUND,
        active_message="",
        last_decision=sentence.decided(spec, match, sample, current, limited.number, limited.by),
    )


def _without_figures(
    spec: AutoscalingSpec, memory: AutoscalingMemory, supply: Supply, missing: str, now_seconds: float
) -> AutoscalingMemory:
    """Hold, and after a while fall back. The limits hold for a fallback too."""
    since = now_seconds if memory.missing_since_seconds is None else memory.missing_since_seconds
    memory = replace(memory, missing_since_seconds=since)
    current = memory.desired or 0
    target = fallback(spec, current, now_seconds - since)
    if target is None or spec.pause == "All" or spec.mode == "External":
        return _told(memory, ActiveReason.STALE_METRICS, missing)
    memory, limited = _apply(spec, memory, None, supply, target, now_seconds)
    return replace(
        memory,
        limited_by=limited.by,
        active=ActiveReason.STALE_METRICS,
        active_message=missing,
        last_decision=sentence.fell_back(spec, now_seconds - since, current, limited.number),
    )


def _apply(
    spec: AutoscalingSpec,
    memory: AutoscalingMemory,
    sample: ScalingSample | None,
    supply: Supply,
    wanted: int,
    now_seconds: float,
) -> tuple[AutoscalingMemory, _Limited]:
    """Take ``wanted`` through bounds, stabilization, guards, policies and pause, in this order, and remember the change."""
    current = memory.desired or 0
    if spec.mode == "External":
        return memory, _Limited(current)
    limited = _bounded(spec, _Limited(wanted))
    memory = behavior.with_wanted(memory, spec, limited.number, now_seconds)
    limited = _stabilized(spec, memory, limited, current, now_seconds)
    limited = limited.to(*guards.guarded(spec, memory.gain, sample, supply, limited.number, current, now_seconds))
    up = behavior.up_limit(spec.behavior.scale_up, memory.changes, current, now_seconds)
    down = behavior.down_limit(spec.behavior.scale_down, memory.changes, current, now_seconds)
    limited = limited.to(min(limited.number, up), LimitedBy.SCALE_UP_POLICY)
    limited = limited.to(max(limited.number, down), LimitedBy.SCALE_DOWN_POLICY)
    if (spec.pause == "ScaleOut" and limited.number > current) or (
        spec.pause == "ScaleIn" and limited.number < current
    ):
        limited = limited.to(current, LimitedBy.PAUSE)
    limited = _bounded(spec, limited)
    memory = behavior.with_change(memory, spec, limited.number - current, now_seconds)
    return replace(memory, desired=limited.number), limited


def _bounded(spec: AutoscalingSpec, limited: _Limited) -> _Limited:
    limited = limited.to(min(limited.number, spec.max_replicas), LimitedBy.MAX_REPLICAS)
    return limited.to(max(limited.number, spec.min_replicas), LimitedBy.MIN_REPLICAS)


def _stabilized(
    spec: AutoscalingSpec, memory: AutoscalingMemory, limited: _Limited, current: int, now_seconds: float
) -> _Limited:
    """The windows; after a gap in the watch nothing shrinks before one whole window has been seen."""
    number = behavior.stabilized(spec, memory, limited.number, current, now_seconds)
    watched = now_seconds - (memory.watching_since_seconds or now_seconds)
    if number < current and watched < spec.behavior.scale_down.stabilization_window_seconds:
        number = current
    up_or_down = LimitedBy.SCALE_UP_STABILIZATION if number < limited.number else LimitedBy.SCALE_DOWN_STABILIZATION
    return limited.to(number, up_or_down)


def _with_wish(
    spec: AutoscalingSpec, memory: AutoscalingMemory, supply: Supply, now_seconds: float
) -> AutoscalingMemory:
    """The number to start from, a user's new number, and the bounds as they are now."""
    desired, wish = memory.desired, supply.requested_replicas
    if desired is None:
        desired = supply.initial_replicas
    elif memory.requested is not None and wish != memory.requested:
        desired = wish
        if spec.mode == "Internal":  # give it one stabilization window; older recommendations knew nothing of it
            memory = replace(memory, highest=((now_seconds, wish),), lowest=(), integral=0.0)
    if spec.mode != "Internal":
        desired = wish
    memory = replace(memory, requested=wish)
    if spec.mode == "Disabled":
        return replace(memory, desired=desired)
    bounded = _bounded(spec, _Limited(desired))
    if spec.mode == "External":
        memory = replace(memory, limited_by=bounded.by)
    return replace(memory, desired=bounded.number)


def _is_due(spec: AutoscalingSpec, memory: AutoscalingMemory, warming: str, now_seconds: float) -> bool:
    """Every sample period, and at the end of the warm-up."""
    decided = memory.decided_seconds
    if decided is None or now_seconds - decided >= spec.sample_period_seconds:
        return True
    return not warming and memory.active == ActiveReason.WARMING_UP


def _told(memory: AutoscalingMemory, active: ActiveReason, message: str) -> AutoscalingMemory:
    """No decision: the number stays, and the status says why."""
    return replace(
        memory,
        limited_by=LimitedBy.NOTHING,
        active=active,
        active_message=message,
        last_decision=sentence.held(memory.desired or 0, message),
    )


def _answer(spec: AutoscalingSpec, memory: AutoscalingMemory) -> Recommendation:
    limited_by = LimitedBy(memory.limited_by)
    if spec.mode == "Disabled":
        limited_by = LimitedBy.NOTHING
    limited = limited_by is not LimitedBy.NOTHING
    return Recommendation(
        desired=memory.desired or 0,
        recommended_before_limits=memory.recommended,
        limited_by=limited_by,
        conditions=(
            ScalingCondition(
                "ScalingActive",
                _status(memory.active == ActiveReason.VALID_METRIC_FOUND),
                memory.active,
                memory.active_message,
            ),
            ScalingCondition(
                "ScalingLimited", _status(limited), limited_by.reason, memory.last_decision if limited else ""
            ),
        ),
        last_decision=memory.last_decision,
        memory=memory,
    )


def _status(value: bool) -> Literal["True", "False"]:
    return "True" if value else "False"

"""What keeps growth in check whatever the rates say: no place for more, too old a policy, growth that brought nothing.

A growth is on trial until it has shown its gain; one that has not is taken back to where it was. Where the policy lag is too
high, actors are taken away until it is not. Either way the number found is a ceiling that is kept for a while, for twice as
long each time that it is found again.
"""

import math
from dataclasses import replace
from typing import Final

from rljob.api.roles import GUARD_PERCENT, AutoscalingSpec

from rljob_operator.core.autoscaling.law import RATE_WINDOW_SECONDS, TOLERANCE, TRIM_SECONDS, Match, figure_error
from rljob_operator.core.autoscaling.model import (
    DECISION_SECONDS,
    GuardMemory,
    LimitedBy,
    RateMemory,
    ScalingSample,
    Supply,
)

UNSCHEDULABLE_SECONDS: Final = 60.0
"""Where actors have waited so long for a place, there is no place for more of them."""

HOLD_SECONDS: Final = 600.0
"""How long a ceiling is kept when it is found for the first time."""

MOST_HOLD_SECONDS: Final = 4800.0
"""How long at most, however often it was found."""

LAG_SHRINK: Final = 0.1
"""Share of the actors taken away, once a rate window, while the policy lag is too high."""

LAG_RECOVERED: Final = 0.8
"""Share of the highest lag allowed below which the lag must be before a ceiling that it set is lifted."""

_JUDGED_GROWTH: Final = 0.1
"""A growth is judged once it has added this share of actors; the gain of fewer can't be told from noise."""

_LEAST_GAIN: Final = 0.1
"""A growth that brings less than this share of what as many actors brought before is taken back."""

_CLEARLY_MORE: Final = 0.5
"""Share of the whole gain that keeps a growth on trial, though noise hides whether it is one."""

_SLOWER: Final = 0.8
"""Actors are slower than before a growth when they deliver less than this share of what they did; the rest may be noise."""

_FEW_STARTS: Final = 0.5
"""So many starting actors, as a share of those that play, do not slow the others."""

_SURE_DEVIATIONS: Final = 3.0
"""Standard errors by which a gain must be seen."""


def most_allowed(
    guards: GuardMemory, match: Match, supply: Supply, current: int, now_seconds: float
) -> tuple[int | None, LimitedBy]:
    """The most actors that the guards allow, and which of them says so; (None, NOTHING) where none does.

    While a growth is on trial, actors that have become slower since are no reason for more of them: it may be that growth which
    slows them.
    """
    slower = 1.0
    if guards.actors is not None:
        slower = match.rates.per_actor_per_second * guards.free_actors / guards.arrived_per_second
    limits = (
        (guards.ceiling if now_seconds < guards.until_seconds else None, LimitedBy(guards.ceiling_by)),
        (current if supply.unschedulable_seconds > UNSCHEDULABLE_SECONDS else None, LimitedBy.UNSCHEDULABLE),
        (max(current, round(match.wanted * slower)) if slower < _SLOWER else None, LimitedBy.GAIN),
    )
    return min(((most, by) for most, by in limits if most is not None), default=(None, LimitedBy.NOTHING))


def growing(guards: GuardMemory, memory: RateMemory, supply: Supply, current: int) -> GuardMemory:
    """A growth from ``current`` actors is on trial from now on, unless an earlier one still is.

    What there was before it is measured until its actors come or many start: the rates may have begun to change just then.
    """
    window, on_trial = memory.window, guards.actors is not None
    come = supply.ready > guards.ready or supply.pending > _FEW_STARTS * supply.ready
    if (on_trial and come) or supply.ready == 0 or min(window.free_actors, window.arrived) <= 0:
        return guards
    return replace(
        guards,
        actors=guards.actors if on_trial else current,
        ready=supply.ready,
        arrived_per_second=window.arrived / window.weight,
        free_actors=window.free_actors / window.weight,
        grown_since_seconds=None,
    )


def learned(
    spec: AutoscalingSpec,
    guards: GuardMemory,
    memory: RateMemory,
    sample: ScalingSample,
    supply: Supply,
    current: int,
    now_seconds: float,
) -> GuardMemory:
    """What a new sample says about the policy lag and about a growth on trial.

    Its gain is what more arrives than before, beyond ``_LEAST_GAIN`` of what as many actors brought then: means over
    the rate window, in which the actors are counted like the arrivals.
    """
    if guards.ceiling is not None and now_seconds >= guards.until_seconds + guards.hold_seconds:
        guards = replace(guards, ceiling=None, hold_seconds=0.0)
    guards = _lagging(spec, guards, sample, current, now_seconds)
    if guards.actors is None:
        return guards
    if current <= guards.actors or sample.wait_fraction <= TOLERANCE:
        return replace(guards, actors=None)
    if supply.ready < guards.ready + max(1.0, _JUDGED_GROWTH * guards.ready):
        return growing(guards, memory, supply, current)
    since, window = guards.grown_since_seconds or now_seconds, memory.window
    guards, played = replace(guards, grown_since_seconds=since), now_seconds - since
    if memory.updated_seconds != memory.taken_seconds or memory.jumped or played < RATE_WINDOW_SECONDS:
        return guards
    arrived = window.arrived / window.weight
    added = (window.free_actors / window.weight / guards.free_actors - 1.0) * guards.arrived_per_second
    noise = figure_error(memory) * math.sqrt(2.0 / window.weight) * arrived
    brought = arrived - guards.arrived_per_second
    if brought >= _LEAST_GAIN * added + _SURE_DEVIATIONS * noise:
        return replace(guards, actors=None)
    if played < TRIM_SECONDS or brought >= _CLEARLY_MORE * added:
        return guards
    return _with_ceiling(guards, guards.actors or current, LimitedBy.GAIN, now_seconds)


def _lagging(
    spec: AutoscalingSpec, guards: GuardMemory, sample: ScalingSample, current: int, now_seconds: float
) -> GuardMemory:
    """A lag that is too high takes actors away, never the last one, without which the lag would not be seen to fall.

    The lag is a mean over about a rate window, anew after each change. Between the two thresholds what was decided stays. A limit
    that is not written follows the learner's own, which rises with the time that weights travel.
    """
    if sample.policy_lag_updates_p95 is None:
        return guards
    most, is_written = (
        float(spec.guards.max_policy_lag_updates),
        "max_policy_lag_updates" in spec.guards.model_fields_set,
    )
    most = most if is_written else max(most, GUARD_PERCENT / 100 * (sample.lag_limit_updates or 0.0))
    share = sample.policy_lag_updates_p95 / most
    before, by_lag = guards.lag_share, guards.ceiling_by == LimitedBy.POLICY_LAG and guards.ceiling is not None
    if before is not None:
        share = before + DECISION_SECONDS / RATE_WINDOW_SECONDS * (share - before)
    guards = replace(guards, lag_share=share)
    settled_seconds = guards.until_seconds - guards.hold_seconds + RATE_WINDOW_SECONDS
    if share > 1.0 and not (by_lag and now_seconds < settled_seconds):
        fewer = max(1, int(current * (1.0 - LAG_SHRINK)))
        return _with_ceiling(guards, min(fewer, guards.ceiling or fewer), LimitedBy.POLICY_LAG, now_seconds)
    if share > LAG_RECOVERED and by_lag and now_seconds < guards.until_seconds:
        return replace(guards, until_seconds=max(guards.until_seconds, now_seconds + RATE_WINDOW_SECONDS))
    return guards


def _with_ceiling(guards: GuardMemory, ceiling: int, by: LimitedBy, now_seconds: float) -> GuardMemory:
    """The memory after a trial, which has found ``ceiling``."""
    is_found_again = guards.ceiling is not None and now_seconds >= guards.until_seconds
    hold = min((guards.hold_seconds or HOLD_SECONDS) * (2.0 if is_found_again else 1.0), MOST_HOLD_SECONDS)
    return replace(
        guards,
        actors=None,
        lag_share=None,
        ceiling=ceiling,
        ceiling_by=by,
        until_seconds=now_seconds + hold,
        hold_seconds=hold,
    )

"""What forbids growth whatever the rates say: no place for more actors, too old a policy, growth that brought nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from rljob.api.autoscaling import AutoscalingSpec

from rljob_operator.core.autoscaling.memory import GainMemory, RateMemory
from rljob_operator.core.autoscaling.model import LimitedBy, ScalingSample, Supply
from rljob_operator.core.autoscaling.rates import figure_error

UNSCHEDULABLE_SECONDS: Final = 60.0
"""Actors that wait for a place so long mean that there is none for more."""

STOPPED_SECONDS: Final = 600.0
"""How long growth stays off after it brought nothing."""

LAG_SHRINK: Final = 0.1
"""Share of the actors taken away in a decision while the policy lag is too high."""

_JUDGED_GROWTH: Final = 0.1
"""A growth is judged once it has added this share of actors; what fewer bring is lost in noise."""

_SURE_DEVIATIONS: Final = 3.0
"""Standard errors by which a growth must have brought less than it should, before it can count as having brought nothing."""


def most_allowed(
    spec: AutoscalingSpec,
    gain: GainMemory,
    sample: ScalingSample | None,
    supply: Supply,
    current: int,
    now_seconds: float,
) -> tuple[int | None, LimitedBy]:
    """The most actors that the guards allow, and which of them says so; (None, NOTHING) where none does.

    A lag that is too high takes actors away, but never the last one: without it nobody would see the lag fall again.
    """
    if lag_is_high(spec, sample):
        return max(1, int(current * (1 - LAG_SHRINK))), LimitedBy.POLICY_LAG
    if supply.unschedulable_seconds > UNSCHEDULABLE_SECONDS:
        return current, LimitedBy.UNSCHEDULABLE
    if gain.stopped_until_seconds is not None and now_seconds < gain.stopped_until_seconds:
        return current, LimitedBy.GAIN
    return None, LimitedBy.NOTHING


def lag_is_high(spec: AutoscalingSpec, sample: ScalingSample | None) -> bool:
    """Whether the 95th percentile of the policy lag is above what the job allows; no figure is no verdict."""
    lag = None if sample is None else sample.policy_lag_updates_p95
    return lag is not None and lag > spec.guards.max_policy_lag_updates


def judged(
    spec: AutoscalingSpec,
    gain: GainMemory,
    memory: RateMemory,
    sample: ScalingSample,
    supply: Supply,
    now_seconds: float,
) -> GainMemory:
    """The verdict on the latest growth, once its actors have played for one rate window.

    gain = (arrivals now - arrivals before) / (actors added * rate of one actor before), means over the rate window, in
    which the actors are counted like the arrivals. Only a learner that still waits makes it count: one that has enough
    now was the aim, whatever the actors could deliver. Figures too noisy to tell a growth that brought all from one that
    brought nothing give no verdict yet. A share of 0 wants none at all: where fewer arrive than before it is for another reason.
    """
    if spec.guards.min_marginal_gain_percent == 0:
        return GainMemory()
    if gain.stopped_until_seconds is not None and now_seconds >= gain.stopped_until_seconds:
        gain = replace(gain, stopped_until_seconds=None)
    if gain.ready is None:
        return gain
    if supply.ready < gain.ready or sample.wait_fraction <= spec.tolerance_percent / 100:
        return GainMemory(stopped_until_seconds=gain.stopped_until_seconds)
    if supply.ready < gain.ready + max(1.0, _JUDGED_GROWTH * gain.ready):
        return gain
    if gain.grown_since_seconds is None:
        return replace(gain, grown_since_seconds=now_seconds)
    if (
        now_seconds - gain.grown_since_seconds < spec.rate_window_seconds
        or memory.updated_seconds != memory.taken_seconds
    ):
        return gain
    window = memory.window
    before = gain.arrived_per_second / gain.free_actors
    added = (window.free_actors / window.weight - gain.free_actors) * before
    brought = window.arrived / window.weight - gain.arrived_per_second
    if brought >= spec.guards.min_marginal_gain_percent / 100 * added:
        return GainMemory(stopped_until_seconds=gain.stopped_until_seconds)
    noise = figure_error(memory) * math.sqrt(2.0 / window.weight) * window.arrived / window.weight
    if added - brought < _SURE_DEVIATIONS * noise:
        return gain
    return GainMemory(stopped_until_seconds=now_seconds + STOPPED_SECONDS)


def growing(gain: GainMemory, memory: RateMemory, supply: Supply) -> GainMemory:
    """Remember what arrived before a growth, unless an earlier growth is still being judged."""
    window = memory.window
    if gain.ready is not None or supply.ready == 0 or window.free_actors <= 0:
        return gain
    return replace(
        gain,
        ready=supply.ready,
        arrived_per_second=window.arrived / window.weight,
        free_actors=window.free_actors / window.weight,
        grown_since_seconds=None,
    )

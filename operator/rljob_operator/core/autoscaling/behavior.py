"""``behavior``: stabilization windows and policies, meaning exactly what they mean in the HorizontalPodAutoscaler."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from rljob.api.autoscaling import AutoscalingSpec, ScalingPolicy, ScalingRules

from rljob_operator.core.autoscaling.memory import MOST_ENTRIES, AutoscalingMemory, Timed


def within_windows(
    spec: AutoscalingSpec, memory: AutoscalingMemory, wanted: int, now_seconds: float
) -> tuple[int, int]:
    """(the least wanted number within the window of growing, the most within that of shrinking), the present one included."""
    up, down = spec.behavior.scale_up, spec.behavior.scale_down
    least = min((wanted, *_within(memory.lowest, now_seconds - up.stabilization_window_seconds)))
    return least, max((wanted, *_within(memory.highest, now_seconds - down.stabilization_window_seconds)))


def up_limit(rules: ScalingRules, changes: Timed, current: int, now_seconds: float) -> int:
    """The most actors that the policies allow now; never below ``current``. Without a policy there is no limit."""
    if rules.select_policy == "Disabled":
        return current
    proposals = [_up(policy, changes, current, now_seconds) for policy in rules.policies]
    return 10**9 if not proposals else max(current, min(proposals) if rules.select_policy == "Min" else max(proposals))


def down_limit(rules: ScalingRules, changes: Timed, current: int, now_seconds: float) -> int:
    """The fewest actors that the policies allow now; never above ``current``. Without a policy there is no limit."""
    if rules.select_policy == "Disabled":
        return current
    proposals = [_down(policy, changes, current, now_seconds) for policy in rules.policies]
    return 0 if not proposals else min(current, max(proposals) if rules.select_policy == "Min" else min(proposals))


def with_wanted(memory: AutoscalingMemory, spec: AutoscalingSpec, wanted: int, now_seconds: float) -> AutoscalingMemory:
    """Remember a recommendation for as long as the windows need it.

    A high (low) one is kept only where no later one exceeds it: the others can't matter again.
    """
    up = now_seconds - spec.behavior.scale_up.stabilization_window_seconds
    down = now_seconds - spec.behavior.scale_down.stabilization_window_seconds
    highest = [entry for entry in memory.highest if entry[0] > down and entry[1] > wanted]
    lowest = [entry for entry in memory.lowest if entry[0] > up and entry[1] < wanted]
    return replace(
        memory,
        highest=_bounded([*highest, (now_seconds, wanted)], max),
        lowest=_bounded([*lowest, (now_seconds, wanted)], min),
    )


def with_change(memory: AutoscalingMemory, spec: AutoscalingSpec, change: int, now_seconds: float) -> AutoscalingMemory:
    """Remember that the number of actors changed, for as long as the longest policy looks back."""
    policies = [*spec.behavior.scale_up.policies, *spec.behavior.scale_down.policies]
    cutoff = now_seconds - max((policy.period_seconds for policy in policies), default=0)
    kept = [entry for entry in memory.changes if entry[0] > cutoff]
    if change:
        kept.append((now_seconds, change))
    return replace(memory, changes=_bounded(kept, lambda older, newer: older + newer))


def _within(entries: Timed, cutoff_seconds: float) -> list[int]:
    return [number for time, number in entries if time > cutoff_seconds]


def _up(policy: ScalingPolicy, changes: Timed, current: int, now_seconds: float) -> int:
    start = current - sum(_within(changes, now_seconds - policy.period_seconds))
    return start + policy.value if policy.type == "Pods" else math.ceil(start * (100 + policy.value) / 100)


def _down(policy: ScalingPolicy, changes: Timed, current: int, now_seconds: float) -> int:
    start = current - sum(_within(changes, now_seconds - policy.period_seconds))
    return start - policy.value if policy.type == "Pods" else int(start * (100 - policy.value) / 100)


def _bounded(entries: list[tuple[float, int]], merge: Callable[[int, int], int]) -> Timed:
    """At most so many entries: the two oldest become one with the later time, which is forgotten rather too late than too
    soon."""
    while len(entries) > MOST_ENTRIES:
        (_, older), (time, newer), *rest = entries
        entries = [(time, merge(older, newer)), *rest]
    return tuple(entries)

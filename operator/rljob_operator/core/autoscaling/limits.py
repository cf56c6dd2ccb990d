"""What may change the number that is aimed for: bounds, the stabilization window, guards, the pace, pause, in this order.

The pace is at once and much upwards, slowly and little downwards, as with a HorizontalPodAutoscaler.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

from rljob.api.roles import AutoscalingSpec
from rljob.api.status import ScalingCalculation

from rljob_operator.core.autoscaling import guards, law
from rljob_operator.core.autoscaling.model import MOST_ENTRIES, AutoscalingMemory, LimitedBy, Supply

STABILIZATION_SECONDS: Final = 180.0
"""Nothing shrinks below what was wanted within this time: a start takes an actor a minute, so a dip is cheaper to sit out."""

_AT_LEAST: Final = 4
"""A decision may double the number, or add so many: from few actors doubling takes too long."""

_AT_MOST_PERCENT: Final = 20
"""A decision may take away this share: what the law asks for when figures jump is uncertain."""


@dataclass(frozen=True, slots=True)
class Limited:
    """A number on its way through the limits and the last of them that changed it."""

    number: int
    by: LimitedBy = LimitedBy.NOTHING

    def to(self, number: int, by: LimitedBy) -> "Limited":
        """The number changed by a rule; itself where the rule changes nothing."""
        return self if number == self.number else Limited(number, by)

    def at_least(self, number: int | None, by: LimitedBy) -> "Limited":
        """Not below ``number``."""
        return self if number is None else self.to(max(self.number, number), by)

    def at_most(self, number: int | None, by: LimitedBy) -> "Limited":
        """Not above ``number``."""
        return self if number is None else self.to(min(self.number, number), by)

    def within(self, least: int | None, most: int | None) -> "Limited":
        """Kept within the bounds minReplicas and maxReplicas."""
        return self.at_most(most, LimitedBy.MAX_REPLICAS).at_least(least, LimitedBy.MIN_REPLICAS)


def bounded(spec: AutoscalingSpec, limited: Limited) -> Limited:
    """Kept within minReplicas and maxReplicas."""
    return limited.within(spec.min_replicas, spec.max_replicas)


def calculated(
    spec: AutoscalingSpec,
    memory: AutoscalingMemory,
    supply: Supply,
    target: int,
    match: law.Match,
    now_seconds: float,
) -> ScalingCalculation:
    """Every number that a decision to go to ``target`` is made of; ``after`` is what the limits make of it.

    With mode External only guards and pause limit: bounds, window and pace are those of the client that writes the number.
    After a gap in the watch nothing shrinks before one whole window has been seen.
    """
    current, bounds = memory.desired or 0, dict[str, Any]()
    most, guard = guards.most_allowed(memory.guards, match, supply, current, now_seconds)
    if spec.mode != "External":
        highest = most_wanted(memory, bounded(spec, Limited(target)).number, now_seconds)
        watched = now_seconds - (memory.watching_since_seconds or now_seconds) >= STABILIZATION_SECONDS
        bounds = {
            "min_replicas": spec.min_replicas,
            "max_replicas": spec.max_replicas,
            "most_wanted": highest if watched else max(highest, current),
            "policy_least": least_after(current),
            "policy_most": most_after(current),
        }
    return ScalingCalculation.model_construct(
        before=current,
        capacity_per_second=match.rates.capacity_per_second,
        per_actor_per_second=match.rates.per_actor_per_second,
        uncertainty=match.rates.uncertainty,
        integral=match.integral,
        missing_items=match.missing_items,
        trim_seconds=match.trim_seconds,
        wanted=match.wanted,
        tolerance=law.tolerance(match, current),
        target=target,
        guard=guard.value,
        guard_most=most,
        pause=spec.pause,
        **bounds,
    )


def through(limits: ScalingCalculation) -> Limited:
    """What the limits make of the number that is aimed for."""
    current, limited = limits.before, Limited(limits.target).within(limits.min_replicas, limits.max_replicas)
    if limits.most_wanted is not None and limited.number < current:
        limited = limited.to(min(current, limits.most_wanted), LimitedBy.SCALE_DOWN_STABILIZATION)
    limited = limited.at_most(limits.guard_most, LimitedBy(limits.guard))
    limited = limited.at_most(limits.policy_most, LimitedBy.SCALE_UP_POLICY)
    limited = limited.at_least(limits.policy_least, LimitedBy.SCALE_DOWN_POLICY)
    if limits.pause in ("ScaleOut", "All"):
        limited = limited.at_most(current, LimitedBy.PAUSE)
    if limits.pause in ("ScaleIn", "All"):
        limited = limited.at_least(current, LimitedBy.PAUSE)
    return limited.within(limits.min_replicas, limits.max_replicas)


def most_after(current: int) -> int:
    """The most actors that one decision may lead to."""
    return max(2 * current, current + _AT_LEAST)


def least_after(current: int) -> int:
    """The fewest actors that one decision may lead to."""
    return current * (100 - _AT_MOST_PERCENT) // 100


def most_wanted(memory: AutoscalingMemory, wanted: int, now_seconds: float) -> int:
    """The most that was wanted within the window, now included."""
    return max(wanted, *(number for time, number in memory.highest if time > now_seconds - STABILIZATION_SECONDS), 0)


def with_wanted(memory: AutoscalingMemory, wanted: int, now_seconds: float) -> AutoscalingMemory:
    """Remember a recommendation for as long as the window needs it: until a later one is as high, or it is too old."""
    cutoff = now_seconds - STABILIZATION_SECONDS
    highest = [entry for entry in memory.highest if entry[0] > cutoff and entry[1] > wanted]
    highest.append((now_seconds, wanted))
    while len(highest) > MOST_ENTRIES:  # the two oldest become one, which is forgotten rather too late than too soon
        (_, older), (time, newer), *rest = highest
        highest = [(time, max(older, newer)), *rest]
    return replace(memory, highest=tuple(highest))

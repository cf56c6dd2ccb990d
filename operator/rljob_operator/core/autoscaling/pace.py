"""How fast the number may change: at once and much upwards, slowly and little downwards, as with a HorizontalPodAutoscaler."""

from dataclasses import replace
from typing import Final

from rljob_operator.core.autoscaling.memory import MOST_ENTRIES, AutoscalingMemory

STABILIZATION_SECONDS: Final = 180.0
"""Nothing shrinks below what was wanted within this time: a start takes an actor a minute, so a dip is cheaper to sit out."""

_AT_LEAST: Final = 4
"""A decision may double the number, or add so many: from few actors doubling takes too long."""

_AT_MOST_PERCENT: Final = 20
"""A decision may take away this share: what the law asks for when figures jump is uncertain."""


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

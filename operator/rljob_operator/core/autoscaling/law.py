"""The control law: match the rates, let the queue's depth trim.

Actors produce, so more of them raise the depth: depth alone has the wrong sign for the usual autoscalers, and at the time
scale of an actor's start it is either empty or full. What is needed is capacity / rate; the depth only corrects it.
"""

import math
from dataclasses import dataclass
from typing import Final

from rljob.api.roles import AutoscalingSpec

from rljob_operator.core.autoscaling.model import ScalingSample
from rljob_operator.core.autoscaling.rates import TOLERANCE, TRIM_SECONDS, Rates

INTEGRAL_GAIN: Final = 0.004
"""Change of the integral a decision, for a queue that is a whole bound away from its target."""

MOST_INTEGRAL: Final = 0.15
"""The integral corrects the match of rates by at most so much, up or down."""

_ROUNDED_UP: Final = 0.65
"""Added before the fraction is cut: up from .35 on, since a learner that waits costs more than an actor that does."""

_ALWAYS_ACTED_ON: Final = 2.0
"""Actors; a difference this large is beyond the tolerance however many there are."""

_ALWAYS_ACTED_ON_IF_STEADY: Final = 0.75
"""The same for a mean over a long time. More than a half, so that a number between two whole ones does not swing."""


@dataclass(frozen=True, slots=True)
class Match:
    """The law's terms: ``wanted = capacity / per_actor * (1 + integral) + trim`` actors.

    ``missing_items``: what the queue lacks of its target, negative where it holds more; ``trim_seconds``: time to mend it.
    """

    rates: Rates
    integral: float
    missing_items: float
    trim_seconds: float

    @property
    def trim(self) -> float:
        """Actors that would fill the queue to its target within the trim's time constant."""
        return self.missing_items / (self.rates.per_actor_per_second * self.trim_seconds)

    @property
    def wanted(self) -> float:
        """The number of actors, not rounded, never negative."""
        return max(0.0, self.rates.needed * (1.0 + self.integral) + self.trim)

    @property
    def certain(self) -> int:
        """The whole number that a growth may go to now: ``wanted * (1 - uncertainty)``.

        Too many actors stay for a stabilization window, too few are found at the next decision, and the estimate becomes certain
        once the learner waits less.
        """
        return math.floor(self.wanted * (1.0 - self.rates.uncertainty) + _ROUNDED_UP)


def match(spec: AutoscalingSpec, rates: Rates, sample: ScalingSample, integral: float) -> Match:
    """What the law asks for now."""
    wanted_batches = spec.target.queue_utilization_percent / 100 * sample.bound_batches
    missing_batches = wanted_batches - min(sample.depth_batches, sample.bound_batches)
    return Match(rates, integral, missing_batches * sample.items_per_batch, TRIM_SECONDS)


def tolerance(match: Match, current: int) -> float:
    """Actors by which the wanted number may differ before anything is done; less where it is a mean over a long time."""
    usual = min(TOLERANCE * current, _ALWAYS_ACTED_ON)
    return min(usual, _ALWAYS_ACTED_ON_IF_STEADY) if match.rates.steady else usual


def rounded(match: Match, current: int) -> int:
    """The whole number to aim for: the current one within the tolerance, else what is wanted, rounded up from .35 on; of a growth
    that is not certain yet, the lower end. Never 0, from where nothing would be seen of the learner again."""
    if abs(match.wanted - current) < tolerance(match, current):
        return current
    return max(1, math.floor(match.wanted + _ROUNDED_UP) if match.wanted < current else max(current, match.certain))


def integrated(spec: AutoscalingSpec, sample: ScalingSample, integral: float) -> float:
    """The integral after one decision that nothing limited.

    It moves only while the learner waits or the actors are blocked for more than the tolerance: a whole number of actors
    never matches exactly, and an integral that follows the rest of a fraction would swing for ever.
    """
    if max(sample.wait_fraction, sample.blocked_fraction) <= TOLERANCE:
        return integral
    fill = min(1.0, sample.depth_batches / sample.bound_batches)
    return max(
        -MOST_INTEGRAL,
        min(MOST_INTEGRAL, integral + INTEGRAL_GAIN * (spec.target.queue_utilization_percent / 100 - fill)),
    )

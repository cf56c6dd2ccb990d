"""The control law: match the rates, let the queue's depth trim.

Actors produce, so more of them raise the depth: depth alone has the wrong sign for the usual autoscalers, and at the time
scale of an actor's start it is either empty or full. What is needed is capacity / rate; the depth only corrects it.

Both rates are right also when one side waits for the other. A learner that waits half of its time could digest twice what it
does, and an actor blocked half of its time could deliver twice what it does. So capacity = items consumed per *busy* second, and
rate = items arrived per *free* actor second. Both are ratios of sums with exponential forgetting: seconds in which a side hardly
worked say little about its speed and weigh little.

Items that arrived are items consumed plus the growth of the queue; nothing else can become of them unless they are
dropped. That is far more exact than the difference of two measured rates, and it still holds when only some of the actors'
figures come in. The measured production counts only where it exceeds the arrivals by more than its noise (a queue that
drops).

The sums exist twice: over the rate window, which follows, and over the trim's time constant, which is calm. The calm one
counts as long as the two agree. A sample that contradicts the window beyond its noise makes both forget the past. How noisy
figures are is measured: production and arrivals are the same items counted at two places, so what varies between the two is
error. With figures too noisy for one of them to prove a jump, the window follows at its own pace.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

from rljob.api.roles import AutoscalingSpec

from rljob_operator.core.autoscaling.model import RateMemory, ScalingSample, Sums

RATE_WINDOW_SECONDS: Final = 60.0
"""Time over which the following estimates forget: about the start of an actor, and four decisions."""

TRIM_SECONDS: Final = 300.0
"""Time in which the trim would mend what the queue lacks, and over which the calm estimates forget."""

TOLERANCE: Final = 0.05
"""Smaller shares are no difference: of actors, of waiting, between two estimates."""

SATURATED: Final = 0.98
"""Above this share of waiting (or blocking) a side works too little to be measured."""

UNSETTLED: Final = 0.1
"""Share of actors that came or went within one tick from which on it is unclear who delivered what."""

FIGURE_ERROR: Final = 0.03
"""Relative error that a mean share of time is taken to have at least, of the smaller of the share and its rest."""

_FIGURE_ERROR_SHARE: Final = 0.25
"""The same as a share of the error that single figures are measured to have: growth is careful by a fraction of the error, since
a learner that waits costs more than an actor that is blocked."""

_NOISY: Final = 0.2
"""Error of single figures above which growth is more careful, since one overshoot then costs more than many small steps."""

_NOISY_SHARE: Final = 0.375
_MOST_UNCERTAIN: Final = 0.5

_LEAST: Final = 1e-9
"""Items per second (or actors) below which nothing happens: an item in thirty years."""

_STEADY_WEIGHT: Final = 5.0
"""Samples behind the calm estimate from which on it is believed."""

_SETTLED_WEIGHT: Final = 2.5
"""Samples behind the window's estimate from which on a sample that contradicts it means a jump and not noise."""

_JUMP_DEVIATIONS: Final = 3.0
_JUMP_ERRORS: Final = 2.0
_LEAST_JUMP: Final = 0.1
_MOST_DEVIATION: Final = 0.5
_MOST_VARIANCE: Final = 1.0


@dataclass(frozen=True, slots=True)
class Rates:
    """Items per second: what the learner could digest and what one actor could deliver, if neither ever waited.

    ``uncertainty`` is how much too high their ratio may be, relative: the more the learner waits, the less its capacity can be
    known from the little that it does. ``steady``: they are means over the long time.
    """

    capacity_per_second: float
    per_actor_per_second: float
    uncertainty: float
    steady: bool

    @property
    def needed(self) -> float:
        """The number of actors that matches the learner."""
        return self.capacity_per_second / self.per_actor_per_second


def rates(memory: RateMemory) -> Rates | None:
    """The present estimates: the calm ones while the window's agree with them to the tolerance; None before there are any."""
    # Actors deliver clearly more than arrives, beyond twice the standard error of a mean over about four samples.
    drops = memory.loss_mean > max(0.02, math.sqrt(max(0.0, memory.loss_square - memory.loss_mean**2)))
    noise = figure_error(memory)
    window = _rates(memory.window, drops, noise, steady=False)
    steady = _rates(memory.steady, drops, noise, steady=True)
    if window is None or steady is None or memory.steady.weight < _STEADY_WEIGHT:
        return window
    return steady if abs(window.needed / steady.needed - 1) <= TOLERANCE else window


def observe(memory: RateMemory, sample: ScalingSample, ready: int) -> RateMemory:
    """The memory after one new sample.

    A sample that says little is left out: taken while more than a tenth of the actors came or went (for one rate window at
    most, then it has to do), or while one side was saturated (for the trim's time constant at most: a learner that
    starves completely for so long does need more actors).
    """
    depth_items = min(sample.depth_batches, sample.bound_batches) * sample.items_per_batch
    before = memory.taken_seconds
    if before is not None and sample.taken_seconds <= before:
        return memory
    window_seconds, steady_seconds = RATE_WINDOW_SECONDS, TRIM_SECONDS
    latest = replace(memory, taken_seconds=sample.taken_seconds, ready=ready, depth_items=depth_items)
    elapsed = window_seconds if before is None else min(sample.taken_seconds - before, window_seconds)
    age = math.inf if memory.updated_seconds is None else sample.taken_seconds - memory.updated_seconds
    moved = abs(ready - memory.ready) / max(ready, memory.ready, 1)
    if before is not None and moved > UNSETTLED and age < window_seconds:
        return latest
    if max(sample.wait_fraction, sample.blocked_fraction) > SATURATED and age < steady_seconds:
        return latest
    growth = 0.0 if before is None else (depth_items - memory.depth_items) / (sample.taken_seconds - before)
    mean_ready = ready if before is None else (ready + memory.ready) / 2
    entry = Sums(
        weight=1.0,
        consumed=sample.consumption_per_second,
        busy=1.0 - min(sample.wait_fraction, SATURATED),
        arrived=max(0.0, sample.consumption_per_second + growth),
        produced=sample.production_per_second,
        free_actors=mean_ready * (1.0 - min(sample.blocked_fraction, SATURATED)),
    )
    if min(entry.consumed, entry.free_actors) < _LEAST:
        return latest
    latest = replace(latest, updated_seconds=sample.taken_seconds)
    if _has_jumped(memory, entry):
        entry = replace(entry, arrived=entry.consumed)
        return replace(latest, window=entry, steady=entry, jumped=not memory.jumped)
    keep = math.exp(-elapsed / window_seconds)
    return replace(
        _note_noise(latest, entry, 1.0 - keep, 1.0 - math.exp(-elapsed / steady_seconds)),
        jumped=False,
        window=memory.window.plus(entry, keep),
        steady=memory.steady.plus(entry, math.exp(-elapsed / steady_seconds)),
    )


def figure_error(memory: RateMemory) -> float:
    """The relative error of a single figure, as measured."""
    return math.sqrt(memory.figure_variance)


def _rates(sums: Sums, drops: bool, noise: float, *, steady: bool) -> Rates | None:
    delivered = sums.produced if drops else sums.arrived
    if min(sums.busy, sums.free_actors, sums.consumed, delivered) < _LEAST:
        return None
    busy = sums.busy / sums.weight
    error = max(FIGURE_ERROR, _FIGURE_ERROR_SHARE * noise) * min(busy, 1.0 - busy)
    if noise > _NOISY:
        error = max(error, _NOISY_SHARE * noise * _most_wrong(busy))
    uncertainty = min(_MOST_UNCERTAIN, error / busy / math.sqrt(sums.weight))
    return Rates(sums.consumed / sums.busy, delivered / sums.free_actors, uncertainty, steady)


def _most_wrong(busy: float) -> float:
    """By how much a share of busy time may be wrong, relative to the error of figures: a wait that reads near 1 may be a half."""
    return min(0.5, 1.0 - busy)


def _surprise(sums: Sums, entry: Sums) -> float:
    """By how much one sample contradicts the estimate of the number of actors needed: the logarithm of their ratio.

    What is consumed must have arrived, so the shares of time alone tell, without the noise of any rate.
    """
    return 0.0 if sums.weight == 0 else math.log((entry.free_actors / entry.busy) / (sums.free_actors / sums.busy))


def _has_jumped(memory: RateMemory, entry: Sums) -> bool:
    error = figure_error(memory) * _most_wrong(entry.busy) / entry.busy
    noise = max(_LEAST_JUMP, _JUMP_DEVIATIONS * memory.deviation, _JUMP_ERRORS * error)
    return (memory.jumped or memory.window.weight >= _SETTLED_WEIGHT) and abs(_surprise(memory.window, entry)) > noise


def _note_noise(memory: RateMemory, entry: Sums, gain: float, slow_gain: float) -> RateMemory:
    mean, square = memory.loss_mean, memory.loss_square
    deviation, variance = memory.deviation, memory.figure_variance
    if memory.window.weight > 0:
        deviation += gain * (min(abs(_surprise(memory.window, entry)), _MOST_DEVIATION) - deviation)
    if entry.produced > 0 and entry.arrived > 0:
        loss = math.log(entry.produced / entry.arrived)
        one = min(_MOST_VARIANCE, (loss - mean) ** 2 / 2)  # of two figures with the same error
        variance += slow_gain * (one - variance)
        mean += gain * (loss - mean)
        square += gain * (loss * loss - square)
    return replace(memory, deviation=deviation, loss_mean=mean, loss_square=square, figure_variance=variance)


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

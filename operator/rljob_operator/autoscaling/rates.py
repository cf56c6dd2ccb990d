"""The learner's capacity and an actor's rate, right also when one side waits for the other.

A learner that waits half of its time could digest twice what it does, and an actor blocked half of its time could deliver
twice what it does. So capacity = items consumed per *busy* second, and rate = items arrived per *free* actor second.
Both are ratios of sums over the rate window with exponential forgetting: seconds in which a side hardly worked say
little about its speed and weigh little.

Items that arrived are items consumed plus the growth of the queue; nothing else can become of them unless they are
dropped. That is far more exact than the difference of two measured rates, and it still holds when only some of the actors'
figures come in. The measured production counts only where it exceeds the arrivals by more than its noise (a queue that
drops).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from rljob_operator.autoscaling.memory import RateMemory
from rljob_operator.autoscaling.model import ScalingSample

SATURATED: Final = 0.98
"""Above this share of waiting (or blocking) a side works too little to be measured."""

UNSETTLED: Final = 0.1
"""Share of actors that came or went within one tick from which on it is unclear who delivered what."""

_JUMP_DEVIATIONS: Final = 3.0
_LEAST_JUMP: Final = 0.1
_MOST_DEVIATION: Final = 0.5


@dataclass(frozen=True, slots=True)
class Rates:
    """Items per second: what the learner could digest and what one actor could deliver, if neither ever waited."""

    capacity_per_second: float
    per_actor_per_second: float

    @property
    def needed(self) -> float:
        """The number of actors that matches the learner."""
        return self.capacity_per_second / self.per_actor_per_second


def rates(memory: RateMemory) -> Rates | None:
    """The present estimates; None before there are any."""
    delivered = memory.produced if _drops(memory) else memory.arrived
    if min(memory.busy, memory.free_actors, memory.consumed, delivered) <= 0:
        return None
    return Rates(memory.consumed / memory.busy, delivered / memory.free_actors)


def observe(
    memory: RateMemory, sample: ScalingSample, ready: int, *, window_seconds: float, patience_seconds: float
) -> RateMemory:
    """The memory after one new sample.

    A sample that says little is left out: taken while more than a tenth of the actors came or went (for one window at
    most, then it has to do), or while one side was saturated (for ``patience_seconds`` at most: a learner that
    starves completely for so long does need more actors).

    Where a sample says that the number of actors needed has jumped, well beyond the noise seen so far, the past is forgotten.
    """
    depth_items = sample.depth_batches * sample.items_per_batch
    before = memory.taken_seconds
    if before is not None and sample.taken_seconds <= before:
        return memory
    latest = replace(memory, taken_seconds=sample.taken_seconds, ready=ready, depth_items=depth_items)
    elapsed = window_seconds if before is None else min(sample.taken_seconds - before, window_seconds)
    age = math.inf if memory.updated_seconds is None else sample.taken_seconds - memory.updated_seconds
    moved = abs(ready - memory.ready) / max(ready, memory.ready, 1)
    if before is not None and moved > UNSETTLED and age < window_seconds:
        return latest
    if max(sample.wait_fraction, sample.blocked_fraction) > SATURATED and age < patience_seconds:
        return latest
    growth = 0.0 if before is None else (depth_items - memory.depth_items) / (sample.taken_seconds - before)
    mean_ready = ready if before is None else (ready + memory.ready) / 2
    entry = RateMemory(
        consumed=sample.consumption_per_second,
        busy=1.0 - min(sample.wait_fraction, SATURATED),
        arrived=max(0.0, sample.consumption_per_second + growth),
        produced=sample.production_per_second,
        free_actors=mean_ready * (1.0 - min(sample.blocked_fraction, SATURATED)),
    )
    if min(entry.consumed, entry.free_actors) <= 0:
        return latest
    keep = math.exp(-elapsed / window_seconds)
    latest = _note_noise(latest, entry, 1.0 - keep)
    if _has_jumped(memory, entry):
        keep = 0.0
    return replace(
        latest,
        consumed=keep * memory.consumed + entry.consumed,
        busy=keep * memory.busy + entry.busy,
        arrived=keep * memory.arrived + entry.arrived,
        produced=keep * memory.produced + entry.produced,
        free_actors=keep * memory.free_actors + entry.free_actors,
        updated_seconds=sample.taken_seconds,
    )


def _needed(memory: RateMemory) -> float | None:
    found = rates(memory)
    return None if found is None else found.needed


def _has_jumped(memory: RateMemory, entry: RateMemory) -> bool:
    before, now = _needed(memory), _needed(entry)
    if before is None or now is None:
        return False
    return abs(math.log(now / before)) > max(_LEAST_JUMP, _JUMP_DEVIATIONS * memory.deviation)


def _note_noise(memory: RateMemory, entry: RateMemory, gain: float) -> RateMemory:
    """The mean deviation of single samples from the estimate, and mean and variance of the logarithm of production / arrivals."""
    before, now = _needed(memory), _needed(entry)
    deviation, mean, square = memory.deviation, memory.loss_mean, memory.loss_square
    if before is not None and now is not None:
        deviation += gain * (min(abs(math.log(now / before)), _MOST_DEVIATION) - deviation)
    if entry.produced > 0 and entry.arrived > 0:
        loss = math.log(entry.produced / entry.arrived)
        mean += gain * (loss - mean)
        square += gain * (loss * loss - square)
    return replace(memory, deviation=deviation, loss_mean=mean, loss_square=square)


def _drops(memory: RateMemory) -> bool:
    """Whether actors deliver clearly more than arrives: twice the standard error of a mean over about four samples."""
    variance = max(0.0, memory.loss_square - memory.loss_mean**2)
    return memory.loss_mean > max(0.02, math.sqrt(variance))

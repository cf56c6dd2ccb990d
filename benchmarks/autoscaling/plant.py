"""The simulated job: a learner, its bounded queue, actors that take a while to start. One second a step, no real time.

Actors make items at a rate each; an actor that finds the queue full is blocked. The learner takes items at a rate of its
own; one that finds the queue empty waits. In iterations (PPO) actors play what they are asked for: the next batch, which they may
begin ``lag`` versions before it is learned from. Figures reach the autoscaler as means over the last fifteen seconds, with noise.
"""

from __future__ import annotations

import math
import random
from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from rljob_operator.core.autoscaling.model import ScalingSample, Supply

START = 1_700_000_000.0
"""Unix time of the simulation's second 0."""

FIGURES_SECONDS = 15

MOST_LAG = 400.0
"""``guards.maxPolicyLagUpdates``, its default for Ape-X."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What happens to the job.

    Attributes:
        seconds: length. queue_items: bound of the queue.
        capacity: (second, items per second the learner can digest from then on); actor_rate: the same for one actor.
        evictions: (second, share of the ready actors that are taken away).
        start_delay_seconds: an actor plays so long after it was asked for, plus up to ``start_spread_seconds``.
        initial_actors: ready at second 0.
        jitter: standard deviation of what all actors together make in a second, relative.
        noise: standard deviation of the figures' errors, relative. A fraction of time errs relative to the smaller of itself and
            its rest, so that none can be wrong by more than there is.
        outages: (first second, last second) without figures. clock_jumps: (second, seconds that the controller's clock jumps).
        reporting_share: share of the actors whose figures come in.
        max_replicas: (second, spec.autoscaling.maxReplicas from then on).
        most_produced: (second, items per second that all actors together can make from then on: a CPU, a network or an ingest
            that they share). start_load: items per second of it that an actor takes away while it starts.
        lag_knee: actors up to which the policy lag is half of what the job allows; from there on it rises by a tenth of that for
            each twentieth more actors. None: no lag is reported. lag_noise: standard deviation of the reported lag, relative.
    """

    seconds: int = 7200
    queue_items: float = 64.0
    capacity: tuple[tuple[int, float], ...] = ((0, 40.0), (1800, 70.0))
    actor_rate: tuple[tuple[int, float], ...] = ((0, 1.0), (3600, 0.6))
    evictions: tuple[tuple[int, float], ...] = ((5400, 0.2),)
    start_delay_seconds: float = 45.0
    start_spread_seconds: float = 10.0
    initial_actors: int = 4
    noise: float = 0.1
    jitter: float = 0.1
    outages: tuple[tuple[int, int], ...] = ()
    clock_jumps: tuple[tuple[int, float], ...] = ()
    reporting_share: float = 1.0
    max_replicas: tuple[tuple[int, int], ...] = ((0, 200),)
    most_produced: tuple[tuple[int, float], ...] = ((0, math.inf),)
    start_load: float = 0.0
    lag_knee: tuple[tuple[int, float], ...] | None = None
    lag_noise: float = 0.1
    iteration_lag: int | None = None


@dataclass(frozen=True, slots=True)
class View:
    """All that a law may look at in one second."""

    second: int
    now_seconds: float
    sample: ScalingSample | None
    supply: Supply
    existing: int
    max_replicas: int


Law = Callable[[View], int]


@dataclass(slots=True)
class Trace:
    """What happened, one entry a second."""

    starved: list[float] = field(default_factory=list)
    blocked: list[float] = field(default_factory=list)
    desired: list[int] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    existing: list[int] = field(default_factory=list)
    needed: list[float] = field(default_factory=list)
    depth: list[float] = field(default_factory=list)
    lag: list[float] = field(default_factory=list)
    consumed: float = 0.0
    starts: int = 0

    def figures(self) -> dict[str, float]:
        """The columns of the table."""
        steps = [after - before for before, after in pairwise(self.desired) if after != before]
        seconds = len(self.desired)
        return {
            "starved_percent": 100 * sum(self.starved) / seconds,
            "blocked_percent": 100 * sum(self.blocked) / seconds,
            "mean_actors": sum(self.existing) / seconds,
            "reversals": float(sum(one * other < 0 for one, other in pairwise(steps))),
            "moves": float(len(steps)),
            "starts": float(self.starts),
            "lag_high_percent": 100 * sum(lag > MOST_LAG for lag in self.lag) / seconds,
            "queueing_seconds": sum(self.depth) / self.consumed if self.consumed else 0.0,
        }


_ALMOST = 1e-6


@dataclass(slots=True)
class Flow:
    """A bounded queue between actors and learner. ``depth``: items that wait."""

    bound: float
    depth: float = 0.0

    def second(self, offered: float, capacity: float) -> tuple[float, float]:
        """(items consumed, items that actors could have made and did not)."""
        consumed = min(capacity, self.depth + offered)
        over = max(0.0, self.depth + offered - consumed - self.bound)
        self.depth += offered - over - consumed
        return consumed, over


@dataclass(slots=True)
class IterationFlow(Flow):
    """One in which actors make the next batch and no more, half of ``bound``: while the one before it is learned from (lag 1), or
    once that has been (0). ``depth``: what has come and has not been learned from; ``waiting``: of it, of the next batch."""

    lag: int = 1
    waiting: float = 0.0

    def second(self, offered: float, capacity: float) -> tuple[float, float]:
        batch, consumed, over, left = self.bound / 2, 0.0, 0.0, 1.0
        while left > 0.0:
            learning = self.depth - self.waiting
            if learning < _ALMOST and self.waiting > batch - _ALMOST:
                learning, self.waiting = self.depth, 0.0
            free = self.waiting < batch - _ALMOST and (self.lag or learning < _ALMOST)
            makes, learns = offered if free else 0.0, capacity if learning > _ALMOST else 0.0
            span = left  # or until one side is done with its batch
            span = min(span, (batch - self.waiting) / makes) if makes else span
            span = min(span, learning / learns) if learns else span
            self.waiting += span * makes
            self.depth = self.waiting + learning - span * learns
            consumed, over, left = consumed + span * learns, over + span * (offered - makes), left - span
        return consumed, over


class Plant:
    """Learner, queue and actors of a scenario, a second a step; who plays is for the caller to say."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._scenario = scenario
        self._errors, self._jitters, self._lags = (
            random.Random(f"{what} {seed}") for what in ("errors", "jitter", "lag")
        )
        self._recent: deque[tuple[float, float, float, float]] = deque(maxlen=FIGURES_SECONDS)
        items, lag = scenario.queue_items, scenario.iteration_lag
        self._flow = Flow(items) if lag is None else IterationFlow(2 * items, lag=lag)
        self.trace = Trace(starts=scenario.initial_actors)

    def sample(self, second: int, now_seconds: float) -> ScalingSample | None:
        """What the learner says now; None in an outage."""
        scenario, lag = self._scenario, self.trace.lag
        sample = _sample(scenario, self._recent, self._flow.depth, second, now_seconds, self._errors)
        if sample is not None and scenario.lag_knee is not None:
            mean_lag = sum(lag[-FIGURES_SECONDS:]) / min(len(lag), FIGURES_SECONDS)
            reported = max(0.0, mean_lag * self._lags.gauss(1, scenario.lag_noise))
            sample = replace(sample, policy_lag_updates_p95=reported)
        return sample

    def step(self, second: int, ready: int, existing: int, desired: int) -> None:
        """``ready`` actors of ``existing`` play for a second, where there should be ``desired``."""
        scenario, trace = self._scenario, self.trace
        capacity, rate = _at(scenario.capacity, second), _at(scenario.actor_rate, second)
        shared = max(0.0, _at(scenario.most_produced, second) - scenario.start_load * (existing - ready))
        offered = min(ready * rate, shared) * max(0.0, self._jitters.gauss(1, scenario.jitter))
        consumed, over = self._flow.second(offered, capacity)
        starved, blocked = 1 - consumed / capacity, over / offered if offered else 0.0
        self._recent.append((starved, blocked, consumed, offered - over))
        trace.starved.append(starved)
        trace.blocked.append(blocked)
        trace.desired.append(desired)
        trace.ready.append(ready)
        trace.existing.append(existing)
        trace.needed.append(min(capacity, _at(scenario.most_produced, second)) / rate)
        trace.depth.append(self._flow.depth)
        if scenario.lag_knee is not None:
            over_knee = max(0.0, ready / _at(scenario.lag_knee, second) - 1)
            trace.lag.append(MOST_LAG * (0.5 + 2.0 * over_knee))
        trace.consumed += consumed


def simulate(scenario: Scenario, law: Law, seed: int) -> Trace:
    """Run ``law`` through ``scenario``; the same seed gives every law the same noise and the same delays."""
    delays, plant, offset = random.Random(f"delays {seed}"), Plant(scenario, seed), 0.0
    ready_at = [0.0] * scenario.initial_actors
    for second in range(scenario.seconds):
        ready = _ready(ready_at, second)
        for at, share in scenario.evictions:
            if at == second:
                del ready_at[: round(share * ready)]
                ready = _ready(ready_at, second)
        offset += sum(jump for at, jump in scenario.clock_jumps if at == second)
        now_seconds = START + second + offset
        supply = Supply(
            ready=ready,
            pending=len(ready_at) - ready,
            draining=0,
            unschedulable_seconds=0.0,
            learner_started_seconds=START,
            requested_replicas=scenario.initial_actors,
        )
        most = int(_at(scenario.max_replicas, second))
        desired = law(View(second, now_seconds, plant.sample(second, now_seconds), supply, len(ready_at), most))
        while len(ready_at) < desired:
            insort(ready_at, second + scenario.start_delay_seconds + delays.uniform(0, scenario.start_spread_seconds))
            plant.trace.starts += 1
        del ready_at[desired:]  # those that are not ready go first
        plant.step(second, _ready(ready_at, second), len(ready_at), desired)
    return plant.trace


def _at(steps: tuple[tuple[int, float], ...], second: int) -> float:
    return next(value for since, value in reversed(steps) if since <= second)


def _ready(ready_at: list[float], second: int) -> int:
    return sum(time <= second for time in ready_at)


def _sample(
    scenario: Scenario,
    recent: deque[tuple[float, float, float, float]],
    depth: float,
    second: int,
    now_seconds: float,
    errors: random.Random,
) -> ScalingSample | None:
    e_wait, e_blocked, e_consumed, e_produced, e_depth = (scenario.noise * errors.gauss(0, 1) for _ in range(5))
    if not recent or any(first <= second <= last for first, last in scenario.outages):
        return None
    batch = 1.0 if scenario.iteration_lag is None else scenario.queue_items
    wait, blocked, consumed, produced = (sum(column) / len(recent) for column in zip(*recent, strict=True))
    return ScalingSample(
        taken_seconds=now_seconds,
        wait_fraction=wait + min(wait, 1 - wait) * e_wait,
        blocked_fraction=blocked + min(blocked, 1 - blocked) * e_blocked,
        consumption_per_second=consumed * (1 + e_consumed),
        production_per_second=produced * scenario.reporting_share * (1 + e_produced),
        depth_batches=depth / batch * (1 + e_depth),
        bound_batches=scenario.queue_items if scenario.iteration_lag is None else 2.0,
        items_per_batch=batch,
    )

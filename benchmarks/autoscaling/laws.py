"""The laws under comparison: the shipped one, those that people would set up with KEDA or an HPA, and two yardsticks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from rljob.api.roles import AutoscalingSpec
from rljob_operator.core.autoscaling.advance import advance
from rljob_operator.core.autoscaling.model import AutoscalingMemory
from rljob_operator.core.rules.actors import LAW_SECONDS

from benchmarks.autoscaling.plant import Law, Scenario, View

MIN_REPLICAS = 2
TICK_SECONDS = 15


def shipped(scenario: Scenario, spec: AutoscalingSpec | None = None) -> Law:
    """`rljob_operator.core.autoscaling.advance` with every default, called every five seconds as the controller does."""
    memory = AutoscalingMemory()
    by_most: dict[int, AutoscalingSpec] = {}
    base = spec or AutoscalingSpec(mode="Internal", min_replicas=MIN_REPLICAS)

    def law(view: View) -> int:
        nonlocal memory
        if view.second % LAW_SECONDS and memory.desired is not None:
            return memory.desired
        bounded = by_most.setdefault(view.max_replicas, base.model_copy(update={"max_replicas": view.max_replicas}))
        answer = advance(bounded, memory, view.sample, view.supply, view.now_seconds)
        memory = answer.memory
        return answer.desired

    return law


def static(actors: int) -> Callable[[Scenario], Law]:
    """A fixed number."""
    return lambda scenario: lambda view: actors


def oracle(scenario: Scenario) -> Law:
    """Knows the true rates without noise or delay, and asks for what matches them; actors still take their time to start."""

    def law(view: View) -> int:
        capacity = next(value for since, value in reversed(scenario.capacity) if since <= view.second)
        rate = next(value for since, value in reversed(scenario.actor_rate) if since <= view.second)
        return min(view.max_replicas, math.ceil(capacity / rate - 1e-9))

    return law


Policy = tuple[int, int, int]
"""(percent, pods, period in seconds): a policy of ``autoscaling/v2`` allows a share, or a number of pods, in a period."""


@dataclass(frozen=True, slots=True)
class Behavior:
    """The HorizontalPodAutoscaler's ``behavior``: of each direction the largest policy counts, as is its default."""

    up: tuple[Policy, ...]
    down_window_seconds: int
    down: tuple[Policy, ...]


@dataclass(slots=True)
class Autoscaler:
    """The HorizontalPodAutoscaler's loop around a formula, every 15 s."""

    wanted: Callable[[View, int], int]
    behavior: Behavior
    current: int
    recommended: list[tuple[float, int]] = field(default_factory=list)
    changes: list[tuple[float, int]] = field(default_factory=list)

    def __call__(self, view: View) -> int:
        if view.second % TICK_SECONDS or view.sample is None:
            return self.current
        wanted, now, behavior = self.wanted(view, self.current), view.now_seconds, self.behavior
        self.recommended.append((now, wanted))
        recent = [number for time, number in self.recommended if time > now - behavior.down_window_seconds]
        number = max(wanted, min(self.current, max([wanted, *recent])))
        number = min(number, max(self.current, *(self._after(each, 1, now) for each in behavior.up)))
        number = max(number, min(self.current, *(self._after(each, -1, now) for each in behavior.down)))
        number = max(MIN_REPLICAS, min(view.max_replicas, number))
        self.changes.append((now, number - self.current))
        self.current = number
        return number

    def _after(self, policy: Policy, sign: int, now_seconds: float) -> int:
        """The number that a policy allows, counted from that at the beginning of its period."""
        percent, pods, period_seconds = policy
        start = self.current - sum(change for time, change in self.changes if time > now_seconds - period_seconds)
        after = start * (100 + sign * percent) / 100 + sign * pods
        return math.ceil(after) if sign > 0 else math.floor(after)


HPA_DEFAULT = Behavior(up=((100, 0, 15), (0, 4, 15)), down_window_seconds=300, down=((100, 0, 15),))
HPA_TUNED = Behavior(up=((20, 0, 60),), down_window_seconds=300, down=((10, 0, 60),))


def keda_on_depth(initial: int | None = None) -> Callable[[Scenario], Law]:
    """KEDA's ScaledObject on the queue's depth, one actor an item (AverageValue "1"), as one would scale consumers."""

    def make(scenario: Scenario) -> Law:
        return Autoscaler(
            lambda view, current: math.ceil(view.sample.depth_batches) if view.sample else current,
            HPA_DEFAULT,
            initial or scenario.initial_actors,
        )

    return make


def hpa_on_inverted(behavior: Behavior) -> Callable[[Scenario], Law]:
    """An HPA on the free slots of the queue with half of them as the target: the sign is right, the dynamics are not."""

    def wanted(view: View, current: int) -> int:
        if view.sample is None:
            return current
        ratio = (view.sample.bound_batches - view.sample.depth_batches) / (0.5 * view.sample.bound_batches)
        return current if abs(ratio - 1) <= 0.1 else math.ceil(current * max(0.0, ratio))

    return lambda scenario: Autoscaler(wanted, behavior, scenario.initial_actors)


def thresholds(scenario: Scenario) -> Law:
    """A fifth more below a quarter full, a tenth less above three quarters, then 60 s of rest."""
    current, rest_until = scenario.initial_actors, 0

    def law(view: View) -> int:
        nonlocal current, rest_until
        if view.second % TICK_SECONDS or view.sample is None or view.second < rest_until:
            return current
        fill = view.sample.depth_batches / view.sample.bound_batches
        before = current
        if fill < 0.25:
            current = min(view.max_replicas, math.ceil(current * 1.2))
        elif fill > 0.75:
            current = max(MIN_REPLICAS, int(current * 0.9))
        if current != before:
            rest_until = view.second + 60
        return current

    return law


LAWS: dict[str, tuple[str, Callable[[Scenario], Law], dict[str, int]]] = {
    "keda": ("KEDA on depth (AverageValue)", keda_on_depth(), {}),
    "keda_from_60": ("KEDA on depth, from 60 actors", keda_on_depth(60), {"initial_actors": 60}),
    "hpa_default": ("HPA on the inverted depth, default behavior", hpa_on_inverted(HPA_DEFAULT), {}),
    "hpa_tuned": ("HPA on the inverted depth, tuned", hpa_on_inverted(HPA_TUNED), {}),
    "thresholds": ("thresholds 25 / 75 %, 60 s rest", thresholds, {}),
    "shipped": ("rljob: matched rates, depth trims", shipped, {}),
    "oracle": ("knows the true rates", oracle, {}),
    "static_86": ("86 actors always", static(86), {"initial_actors": 86}),
    "static_117": ("117 actors always", static(117), {"initial_actors": 117}),
    "static_40": ("40 actors always", static(40), {"initial_actors": 40}),
}


def run_law(name: str, scenario: Scenario) -> tuple[Scenario, Law]:
    """The scenario as the law meets it (some start with a number of their own), and the law, fresh."""
    _, make, changes = LAWS[name]
    scenario = replace(scenario, **changes)  # type: ignore[arg-type]
    return scenario, make(scenario)

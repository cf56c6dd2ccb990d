"""The laws under comparison: the shipped one, those that people would set up with KEDA or an HPA, and two yardsticks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from rljob.api.autoscaling import AutoscalingSpec, ScaleDownRules, ScaleUpRules, ScalingBehavior, ScalingPolicy
from rljob_operator.core.autoscaling import AutoscalingMemory, advance
from rljob_operator.core.autoscaling.behavior import down_limit, up_limit, with_change, with_wanted, within_windows
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


@dataclass(slots=True)
class Autoscaler:
    """The HorizontalPodAutoscaler's loop around a formula: every 15 s, windows and policies as in ``behavior``."""

    wanted: Callable[[View, int], int]
    behavior: ScalingBehavior
    current: int
    memory: AutoscalingMemory = field(default_factory=AutoscalingMemory)

    def __call__(self, view: View) -> int:
        if view.second % TICK_SECONDS or view.sample is None:
            return self.current
        spec = AutoscalingSpec(behavior=self.behavior)
        wanted = self.wanted(view, self.current)
        self.memory = with_wanted(self.memory, spec, wanted, view.now_seconds)
        least, most = within_windows(spec, self.memory, wanted, view.now_seconds)
        number = min(max(self.current, least), most)
        number = min(number, up_limit(self.behavior.scale_up, self.memory.changes, self.current, view.now_seconds))
        number = max(number, down_limit(self.behavior.scale_down, self.memory.changes, self.current, view.now_seconds))
        number = max(MIN_REPLICAS, min(view.max_replicas, number))
        self.memory = with_change(self.memory, spec, number - self.current, view.now_seconds)
        self.current = number
        return number


def _behavior(
    up: tuple[tuple[str, int, int], ...], down_window_seconds: int, down: tuple[tuple[str, int, int], ...]
) -> ScalingBehavior:
    """Policies as (type, value, period); the largest counts, as is the HorizontalPodAutoscaler's default."""
    return ScalingBehavior(
        scale_up=ScaleUpRules(policies=_policies(up)),
        scale_down=ScaleDownRules(
            stabilization_window_seconds=down_window_seconds, select_policy="Max", policies=_policies(down)
        ),
    )


def _policies(given: tuple[tuple[str, int, int], ...]) -> list[ScalingPolicy]:
    return [ScalingPolicy(type=kind, value=value, period_seconds=period) for kind, value, period in given]


HPA_DEFAULT = _behavior((("Percent", 100, 15), ("Pods", 4, 15)), 300, (("Percent", 100, 15),))
HPA_TUNED = _behavior((("Percent", 20, 60),), 300, (("Percent", 10, 60),))


def keda_on_depth(initial: int | None = None) -> Callable[[Scenario], Law]:
    """KEDA's ScaledObject on the queue's depth, one actor an item (AverageValue "1"), as one would scale consumers."""

    def make(scenario: Scenario) -> Law:
        return Autoscaler(
            lambda view, current: math.ceil(view.sample.depth_batches) if view.sample else current,
            HPA_DEFAULT,
            initial or scenario.initial_actors,
        )

    return make


def hpa_on_inverted(behavior: ScalingBehavior) -> Callable[[Scenario], Law]:
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

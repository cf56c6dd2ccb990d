"""A change of ``spec.autoscaling`` takes effect at once: each field is changed in the middle of a course that shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rljob.api.autoscaling import AutoscalingSpec, ScalingPolicy
from rljob.api.mutability import places

from tests.unit.operator.autoscaling.test_rules import SPEC, Job

Event = Callable[[Job], None]


def changed(spec: AutoscalingSpec, path: str, value: Any) -> AutoscalingSpec:
    name, _, rest = path.partition(".")
    return spec.model_copy(update={name: changed(getattr(spec, name), rest, value) if rest else value})  # type: ignore[arg-type]


def sets(**fields: Any) -> Event:
    """The job is like that from now on; without a field its course goes on as it did."""

    def event(job: Job) -> None:
        vars(job).update(fields)

    return event


def in_vain(job: Job) -> None:
    """The actors share one machine from now on, so more of them bring nothing."""
    job.capacity, job.rate = 90.0, 40.0 / job.actors


nothing, more, less = sets(), sets(capacity=90.0), sets(capacity=20.0)
late, silent, old = sets(lag=401.0), sets(seen=False), sets(age=60.0)


BY_FIVE = [ScalingPolicy(type="Pods", value=5, period_seconds=60)]
SLOWLY = [ScalingPolicy(type="Pods", value=1, period_seconds=60)]
FALLBACK = changed(SPEC, "missing_metrics.action", "Fallback")
SOON = changed(FALLBACK, "missing_metrics.fallback.after_seconds", 60)
COURSES: dict[str, tuple[AutoscalingSpec, Any, Event]] = {
    "min_replicas": (SPEC, 50, nothing),
    "max_replicas": (SPEC, 30, nothing),
    "target.queue_utilization_percent": (SPEC, 99, nothing),
    "sample_period_seconds": (SPEC, 60, more),
    "rate_window_seconds": (SPEC, 300, late),
    "behavior.scale_up.stabilization_window_seconds": (SPEC, 600, more),
    "behavior.scale_up.select_policy": (SPEC, "Disabled", more),
    "behavior.scale_up.policies": (SPEC, SLOWLY, more),
    "behavior.scale_down.stabilization_window_seconds": (SPEC, 0, less),
    "behavior.scale_down.select_policy": (SPEC, "Disabled", less),
    "behavior.scale_down.policies": (SPEC, SLOWLY, less),
    "guards.max_policy_lag_updates": (SPEC, 1000, late),
    "guards.min_marginal_gain_percent": (changed(SPEC, "behavior.scale_up.policies", BY_FIVE), 0, in_vain),
    "missing_metrics.stale_after_seconds": (SPEC, 100, old),
    "missing_metrics.action": (changed(SOON, "missing_metrics.action", "Hold"), "Fallback", silent),
    "missing_metrics.fallback.after_seconds": (changed(FALLBACK, "missing_metrics.fallback.replicas", 60), 60, silent),
    "missing_metrics.fallback.replicas": (SOON, 60, silent),
    "missing_metrics.fallback.behavior": (SOON, "Static", silent),
    "pause": (SPEC, "All", more),
}


def test_every_field_has_a_course() -> None:
    names = {".".join(step.name for step in place.steps) for place in places(AutoscalingSpec, whole_sections=False)}
    assert names - {"mode"} == set(COURSES), "the mode: test_any_time.py"


@pytest.mark.parametrize("path", COURSES)
def test_a_change_takes_effect(path: str) -> None:
    before, value, event = COURSES[path]

    def played(after: AutoscalingSpec) -> list[tuple[object, ...]]:
        job = Job(before)
        job.run(300)
        job.spec = after
        for _ in range(600):
            event(job)
            job.run(1)
        return [(each.desired, each.limited_by, each.last_decision) for each in job.answers[300:]]

    assert played(changed(before, path, value)) != played(before)

"""Every decision is done again from the numbers in the status alone, as a person with a pencil would do it; a changed field of
``spec.autoscaling`` takes effect at once.
"""

import json
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from rljob.api.mutability import places
from rljob.api.roles import AutoscalingSpec
from rljob.api.status import ScalingCalculation
from rljob_operator.core.autoscaling.advance import advance
from rljob_operator.core.autoscaling.model import AutoscalingMemory, LimitedBy, ScalingSample, Supply

from tests.unit.operator.autoscaling.test_rules import SPEC, Job

T0 = 1_700_000_000.0
Event = Callable[[Job], None]


def by_hand(numbers: dict[str, Any]) -> tuple[int, int]:
    """(target, after), as docs/autoscaling.md describes the steps."""
    before = numbers["before"]
    target = numbers["target"]
    if "wanted" in numbers:
        rate = float(numbers["perActorPerSecond"])
        wanted = float(numbers["capacityPerSecond"]) / rate * (1 + float(numbers["integral"]))
        wanted += float(numbers["missingItems"]) / (rate * float(numbers["trimSeconds"]))
        wanted = max(0.0, wanted)
        assert wanted == pytest.approx(float(numbers["wanted"]), rel=1e-12)
        if abs(wanted - before) < float(numbers["tolerance"]):
            target = before
        elif wanted < before:
            target = max(1, math.floor(wanted + 0.65))
        else:
            target = max(1, before, math.floor(wanted * (1 - float(numbers["uncertainty"])) + 0.65))
    least, most = numbers.get("minReplicas", 0), numbers.get("maxReplicas", 10**12)
    number = max(least, min(most, target))
    if number < before:
        number = min(before, numbers.get("mostWanted", number))
    if "guardMost" in numbers:
        assert numbers["guard"]
        number = min(number, numbers["guardMost"])
    number = min(number, numbers.get("policyMost", number))
    number = max(number, numbers.get("policyLeast", number))
    if (numbers["pause"] == "ScaleOut" and number > before) or (numbers["pause"] == "ScaleIn" and number < before):
        number = before
    return target, max(least, min(most, number))


def some_spec(chance: random.Random, mode: str) -> AutoscalingSpec:
    low = chance.randint(0, 10)
    return AutoscalingSpec(
        mode=mode,  # type: ignore[arg-type]
        min_replicas=low,
        max_replicas=low + chance.randint(1, 100),
        pause=chance.choice(("None", "None", "None", "ScaleIn", "ScaleOut")),
    )


def walk(seed: int, mode: str) -> tuple[int, set[str]]:
    """A few decisions on a job whose rates change; answers how many were done again, and what limited them."""
    chance = random.Random(f"{mode} {seed}")
    spec, memory, now, wish = some_spec(chance, mode), AutoscalingMemory(), T0, chance.randint(1, 60)
    actors, capacity, rate, stuck, lag = wish, 40.0, 1.0, 0.0, 0.0
    checked, limits = 0, set()
    for _ in range(40):
        now += 15.0
        if chance.random() < 0.1:
            capacity, rate = chance.uniform(1, 100), chance.uniform(0.5, 3.0)
            stuck, lag = chance.choice((0.0, 0.0, 90.0)), chance.choice((0.0, 0.0, 900.0))
        offered = max(1, actors) * rate * chance.gauss(1, 0.03)
        done = min(offered, capacity)
        depth = 64.0 * chance.random()
        sample = ScalingSample(now, 1 - done / capacity, 1 - done / offered, done, done, depth, 64.0, 1.0, lag)
        if chance.random() < 0.02:
            wish = chance.randint(0, 80)
        seen = sample if chance.random() < 0.7 else None
        answer = advance(spec, memory, seen, Supply(actors, 0, 0, stuck, T0, wish), now)
        calculation = answer.calculation
        if calculation is not None:
            numbers = json.loads(ScalingCalculation.model_dump_json(calculation, by_alias=True, exclude_none=True))
            assert by_hand(numbers) == (numbers["target"], numbers["after"]), (answer.last_decision, numbers)
            assert numbers["after"] == (answer.desired if mode == "Internal" else answer.recommended)
            checked += 1
            limits.add(str(answer.limited_by))
        memory, actors = answer.memory, answer.desired
    return checked, limits


@pytest.mark.parametrize("mode", ["Internal", "External"])
def test_every_decision_can_be_done_again_from_the_status(mode: str, any_seed: Any) -> None:
    walks = [walk(any_seed(seed), mode) for seed in range(260)]
    assert sum(checked for checked, _ in walks) > 2000
    limits = set().union(*(found for _, found in walks))
    if mode == "Internal" and not any_seed.fresh:
        assert limits == set(LimitedBy), "every limit has acted"


def changed(spec: AutoscalingSpec, path: str, value: Any) -> AutoscalingSpec:
    name, _, rest = path.partition(".")
    return spec.model_copy(update={name: changed(getattr(spec, name), rest, value) if rest else value})  # type: ignore[arg-type]


def sets(**fields: Any) -> Event:
    """The job is like that from now on; without a field its course goes on as it did."""

    def event(job: Job) -> None:
        vars(job).update(fields)

    return event


nothing, more, late = sets(), sets(capacity=90.0), sets(lag=401.0)
COURSES: dict[str, tuple[Any, Event]] = {
    "min_replicas": (50, nothing),
    "max_replicas": (30, nothing),
    "target.queue_utilization_percent": (99, nothing),
    "guards.max_policy_lag_updates": (1000, late),
    "pause": ("All", more),
}


def test_every_field_has_a_course() -> None:
    names = {".".join(step.name for step in place.steps) for place in places(AutoscalingSpec, whole_sections=False)}
    assert names - {"mode"} == set(COURSES), "the mode: test_any_time.py"


@pytest.mark.parametrize("path", COURSES)
def test_a_change_takes_effect(path: str) -> None:
    value, event = COURSES[path]

    def played(after: AutoscalingSpec) -> list[tuple[object, ...]]:
        job = Job()
        job.run(300)
        job.spec = after
        for _ in range(600):
            event(job)
            job.run(1)
        return [(each.desired, each.limited_by, each.last_decision) for each in job.answers[300:]]

    assert played(changed(SPEC, path, value)) != played(SPEC)

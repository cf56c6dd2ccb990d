"""The status: its way through JSON, its bounds, and progress."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from pydantic import ValidationError
from rljob.api.controller_memory import MAX_CURVE_POINTS
from rljob.api.status import Condition, RLJobStatus
from rljob.api.timestamps import parse_rfc3339, rfc3339, stamp

from tests.support.controller import START, evaluation, running, sample


@pytest.mark.parametrize("seconds", [0.0, 0.001, 1_700_000_000.0, 1_700_000_000.999, 1_700_000_000.0004, 4e9])
def test_times_survive(seconds: float) -> None:
    text = rfc3339(seconds)
    assert text.endswith("Z")
    assert parse_rfc3339(text) == stamp(seconds)


def test_times_of_other_zones_are_understood() -> None:
    assert parse_rfc3339("2026-11-21T17:00:00+01:00") == parse_rfc3339("2026-11-21T16:00:00Z")


@pytest.mark.parametrize("bad", ["yesterday", "2026-11-21T16:00:00", "", None, float("nan"), -5.0, [], 1e30])
def test_what_is_no_time(bad: object) -> None:
    with pytest.raises(ValidationError, match="allowed: a time such as"):
        Condition(type="Ready", status="True", last_transition_time=bad)  # type: ignore[arg-type]


def test_fields_of_a_newer_controller_are_ignored() -> None:
    controller = running()
    document = controller.status.document() | {"invented": {"later": 1}}
    document["controller"]["alsoInvented"] = 2
    assert RLJobStatus.model_validate(document) == controller.status


def test_the_document_is_camel_case_without_nulls() -> None:
    document = running().status.document()
    assert ("null" in json.dumps(document), "_" in "".join(document)) == (False, False)
    assert document["conditions"][0]["lastTransitionTime"].endswith("Z")


def test_progress_is_written_rarely() -> None:
    controller = running("spec.successPolicy.rawFrames=1000000")

    def look(seconds: float, frames: int, **figures: Any) -> Any:
        learner = sample(controller.now + seconds, frames // 4, raw_frames_total=frames, **figures)
        controller.look(seconds, learner=learner)
        return controller.status.progress

    assert look(10.0, 4400) == controller.status.progress
    told = look(1.0, 60_000)
    assert (told.raw_frames, told.percent) == (60_000, 6), "more than a percent"
    assert look(29.0, 60_100).raw_frames == 60_000
    progress = look(1.0, 60_200, evaluations=[evaluation(3.5)])
    assert (progress.raw_frames, progress.eval_return, progress.last_update_time) == (60_200, 3.5, controller.now)


def test_the_time_to_go_follows_the_rate() -> None:
    controller = running("spec.successPolicy.rawFrames=1000000", "spec.successPolicy.targetReturn=")
    for k in range(1, 200):
        controller.look(10.0, learner=sample(START + 10.0 * k, 1000 + k, raw_frames_total=2000 * k))
    left = controller.status.progress.estimated_seconds_remaining
    assert left == pytest.approx((1_000_000 - 2000 * 199) / 200, rel=0.1)
    curve = controller.status.controller.curve
    assert (len(curve) <= MAX_CURVE_POINTS, curve[0].active_seconds <= 20) == (True, True), "the curve spans the run"


def test_a_steady_job_is_not_written_at_every_look() -> None:
    controller = running()
    controller = running()
    statuses = [controller.status, *(controller.look(1.0).status for _ in range(29))]
    assert sum(before != after for before, after in pairwise(statuses)) <= 1


@pytest.mark.parametrize(
    ("depth", "bound", "percent"),
    [(0.0, 8.0, 0), (2.0, 8.0, 25), (9.0, 8.0, 100), (None, 8.0, None), (2.0, None, None)],
)
def test_the_fill_of_the_queue(depth: float | None, bound: float | None, percent: int | None) -> None:
    figures = {"queue_depth_batches": depth, "queue_bound_batches": bound, "policy_lag_updates_p95": 12.4}
    given = {name: value for name, value in figures.items() if value is not None}
    controller = running()
    controller.look(60.0, learner=sample(controller.now + 60.0, 2000, **given))
    progress = controller.status.progress
    assert (progress.queue_fill_percent, progress.policy_lag_updates) == (percent, 12)


def test_without_figures_both_are_unknown() -> None:
    controller = running()
    controller.look(60.0, learner=sample(controller.now + 60.0, 2000, queue_depth_batches=1.0, queue_bound_batches=2.0))
    assert controller.status.progress.queue_fill_percent == 50
    controller.look(60.0, learner=None)
    progress = controller.status.progress
    assert (progress.queue_fill_percent, progress.policy_lag_updates, progress.learner_updates) == (None, None, 2000)


def test_what_would_add_most_is_said_once_the_figures_tell() -> None:
    controller = running()
    figures = {"steps_per_second": 1000.0, "learner_wait_fraction": 0.5, "actors_blocked_fraction": 0.0}
    known = {**figures, "actors": [{"name": "actor-0"}, {"name": "actor-1"}]}
    said = "an actor on a core of its own would add 50 % to 1,000 steps/s; the knee of one more actor is at 4.0 of them, 2 play"
    still = {**known, "steps_per_second": 20.0, "state": "Evaluating"}
    for updates, told, words in ((2000, known, said), (2000, still, said), (3000, {}, "")):
        controller.look(60.0, learner=sample(controller.now + 60.0, updates, **told))
        assert controller.status.progress.next_unit == words

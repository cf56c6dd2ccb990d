"""The status: its way through JSON, its bounds, and progress."""

from __future__ import annotations

import json

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
    assert "null" not in json.dumps(document)
    assert "_" not in "".join(document)
    assert document["conditions"][0]["lastTransitionTime"].endswith("Z")


def test_progress_is_written_rarely() -> None:
    controller = running("spec.successPolicy.rawFrames=1000000")
    first = controller.status.progress
    controller.look(10.0, learner=sample(START + 11, 1100, raw_frames_total=4400))
    assert controller.status.progress == first
    controller.look(1.0, learner=sample(START + 12, 1200, raw_frames_total=60_000))
    assert controller.status.progress.raw_frames == 60_000, "more than a percent"
    assert controller.status.progress.percent == 6
    controller.look(29.0, learner=sample(START + 41, 1300, raw_frames_total=60_100))
    assert controller.status.progress.raw_frames == 60_000
    controller.look(1.0, learner=sample(START + 42, 1300, raw_frames_total=60_200, evaluations=[evaluation(3.5)]))
    progress = controller.status.progress
    assert (progress.raw_frames, progress.eval_return, progress.last_update_time) == (60_200, 3.5, controller.now)


def test_the_time_to_go_follows_the_rate() -> None:
    controller = running("spec.successPolicy.rawFrames=1000000", "spec.successPolicy.targetReturn=")
    for k in range(1, 200):
        controller.look(10.0, learner=sample(START + 10.0 * k, 1000 + k, raw_frames_total=2000 * k))
    left = controller.status.progress.estimated_seconds_remaining
    assert left is not None
    assert left == pytest.approx((1_000_000 - 2000 * 199) / 200, rel=0.1)
    assert len(controller.status.controller.curve) <= MAX_CURVE_POINTS
    assert controller.status.controller.curve[0].active_seconds <= 20, "the curve spans the run"


def test_a_steady_job_is_not_written_at_every_look() -> None:
    controller = running()
    before = controller.status
    changes = 0
    for _ in range(29):
        decision = controller.look(1.0)
        changes += decision.status != before
        before = decision.status
    assert changes <= 1

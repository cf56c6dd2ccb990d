"""The status: its way through JSON, its bounds, progress, and when it has to be stored."""

import json
from itertools import pairwise
from typing import Any

import pytest
from pydantic import ValidationError
from rljob.api.controller_memory import MAX_CURVE_POINTS
from rljob.api.live import digest, wanted
from rljob.api.status import Condition, RLJobStatus
from rljob.api.status_model import parse_rfc3339, rfc3339, stamp
from rljob_operator.core.desired import DesiredState, Session
from rljob_operator.core.member import Phase
from rljob_operator.core.observed import Observation
from rljob_operator.core.turn import StatusWrite, Turn, turn

from tests.support.controller import START, Controller, evaluation, make_job, members, running, sample

INTERNAL = ("spec.autoscaling={mode: Internal, minReplicas: 2, maxReplicas: 2}",)
FIGURES: dict[str, Any] = {
    "consumption_per_second": 500.0,
    "production_per_second": 500.0,
    "queue_depth_batches": 2.0,
    "queue_bound_batches": 10.0,
    "learner_wait_fraction": 0.1,
    "actors_blocked_fraction": 0.1,
}


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


def test_fields_of_a_newer_controller_are_ignored(controller: Controller) -> None:
    document = controller.status.document() | {"invented": {"later": 1}}
    document["controller"]["alsoInvented"] = 2
    assert RLJobStatus.model_validate(document) == controller.status


def test_the_document_is_camel_case_without_nulls() -> None:
    document = running().status.document()
    assert ("null" in json.dumps(document), "_" in "".join(document)) == (False, False)
    assert document["conditions"][0]["lastTransitionTime"].endswith("Z")


def test_what_the_learner_says_of_a_fork_stands_until_another_is_asked_for() -> None:
    def asks(id: str) -> str:
        return f"spec.fork={{id: {id}, from: 'file:///a', digest: 'sha256:{'0' * 64}'}}"

    controller, seen = running(asks("a")), []
    done, refused = {"updates": 7, "raw_frames": 28}, {"message": "there is none"}
    for id, said in (("a", None), ("a", {"id": "a", "state": "Done", **done}), ("a", {"id": "a", "state": "Done"}),
                     ("b", {"id": "a", "state": "Done"}), ("b", {"id": "b", "state": "Refused", **refused})):  # fmt: skip
        controller.job = make_job(asks(id))
        name = digest(wanted(controller.job.spec))
        controller.look(1.0, learner=sample(controller.now, 1000, fork=said, following=name if id == "a" else "other"))
        fork, following = controller.status.fork, controller.status.following
        assert fork is not None
        assert following is not None
        seen.append((fork.id, fork.state, fork.updates, fork.message, following.followed))
    assert seen == [
        ("a", "Waiting", None, "", True), ("a", "Done", 7, "", True), ("a", "Done", 7, "", True),
        ("b", "Waiting", None, "", False), ("b", "Refused", None, "there is none", False),
    ]  # fmt: skip


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


def test_a_steady_job_is_not_written_at_every_look(controller: Controller) -> None:
    statuses = [controller.status, *(controller.look(1.0).status for _ in range(29))]
    assert sum(before != after for before, after in pairwise(statuses)) <= 1


@pytest.mark.parametrize(
    ("depth", "bound", "percent"),
    [(0.0, 8.0, 0), (2.0, 8.0, 25), (9.0, 8.0, 100), (None, 8.0, None), (2.0, None, None)],
)
def test_the_fill_of_the_queue(
    depth: float | None, bound: float | None, percent: int | None, controller: Controller
) -> None:
    figures = {"queue_depth_batches": depth, "queue_bound_batches": bound, "policy_lag_updates_p95": 12.4}
    given = {name: value for name, value in figures.items() if value is not None}
    controller.look(60.0, learner=sample(controller.now + 60.0, 2000, **given))
    progress = controller.status.progress
    assert (progress.queue_fill_percent, progress.policy_lag_updates) == (percent, 12)


def test_without_figures_both_are_unknown(controller: Controller) -> None:
    controller.look(60.0, learner=sample(controller.now + 60.0, 2000, queue_depth_batches=1.0, queue_bound_batches=2.0))
    assert controller.status.progress.queue_fill_percent == 50
    controller.look(60.0, learner=None)
    progress = controller.status.progress
    assert (progress.queue_fill_percent, progress.policy_lag_updates, progress.learner_updates) == (None, None, 2000)


def test_what_would_add_most_is_said_once_the_figures_tell(controller: Controller) -> None:
    figures = {"steps_per_second": 1000.0, "learner_wait_fraction": 0.5, "actors_blocked_fraction": 0.0}
    known = {**figures, "actors": [{"name": "actor-0"}, {"name": "actor-1"}]}
    said = "an actor on a core of its own would add 50 % to 1,000 steps/s; the knee of one more actor is at 4.0 of them, 2 play"
    still = {**known, "steps_per_second": 20.0, "state": "Evaluating"}
    for updates, told, words in ((2000, known, said), (2000, still, said), (3000, {}, "")):
        controller.look(60.0, learner=sample(controller.now + 60.0, updates, **told))
        assert controller.status.progress.next_unit == words


def turn_of(controller: Controller, seconds: float, session: Session | None = None, **world: Any) -> Turn:
    """The next turn on what the controller's world holds, and its status taken over."""
    controller.now += seconds
    controller.world |= world
    stored = DesiredState(controller.job)
    done = turn(stored, controller.status, Observation(**controller.world), controller.now, session)
    controller.status = done.decision.status
    return done


def test_a_start_is_written_before_it_is_made() -> None:
    first = turn(DesiredState(make_job()), RLJobStatus(), Observation(), START)
    assert first.decision.start
    assert first.write is StatusWrite.BEFORE_ACTING


def test_a_member_that_was_not_there_before_may_start_before_it_is_told_what_was_waited_for() -> None:
    """All that its start follows from is stored, or is found again. A crash in between costs nothing."""
    controller = Controller(make_job("spec.actors.replicas=3"))
    found = turn_of(controller, 1.0, members=())
    assert "learner" in found.decision.start
    assert found.write is StatusWrite.BEFORE_ACTING, "the epoch that it is given must not be given twice"
    turn_of(controller, 1.0, members=members(actors=2, actor_1=Phase.STARTING))
    found = turn_of(controller, 1.0, members=members(actors=2))
    assert "actor-2" in found.decision.start
    assert found.write is StatusWrite.SOON


@pytest.mark.parametrize("mode", [(), INTERNAL])
def test_fresh_figures_alone_can_wait(mode: tuple[str, ...]) -> None:
    """A learner that tells something new at every look makes no write urgent: 1,000 such jobs would write all the time."""
    controller = running(*mode)
    for k in range(5):  # the scaler has its first figures, the conditions their first reasons
        turn_of(controller, 30.0, learner=sample(controller.now + 30.0, 2000 + 50 * k, **FIGURES))
    writes = [
        turn_of(controller, 1.0, learner=sample(controller.now + 1.0, 3000 + k, **FIGURES)).write for k in range(60)
    ]
    assert writes.count(StatusWrite.BEFORE_ACTING) == 0, writes
    assert StatusWrite.WHEN_DUE in writes


def test_a_look_that_finds_nothing_new_writes_nothing(controller: Controller) -> None:
    turn_of(controller, 1.0)
    assert turn_of(controller, 1.0).write is StatusWrite.NONE


def test_a_changed_condition_is_seen_and_is_written_soon() -> None:
    found = turn_of(running(), 1.0, members=members(learner=Phase.STARTING))
    assert found.write is StatusWrite.SOON
    assert not any(map(found.decision.status.is_true, ("LearnerReady", "Ready")))


def test_an_end_that_is_decided_is_written_before_anything_else() -> None:
    controller = running("spec.activeDeadlineSeconds=100")
    assert turn_of(controller, 200.0).write is StatusWrite.BEFORE_ACTING
    assert controller.status.is_true("FailureTarget")


def test_time_that_passes_is_told_seldom() -> None:
    """A job that waits for its pods has nothing to tell, but that a controller looks after it."""
    controller = Controller(make_job())
    turn_of(controller, 1.0, members=())
    turn_of(controller, 1.0, members=members(learner=Phase.STARTING))
    before = controller.status.progress.last_update_time
    writes = [turn_of(controller, 10.0).write for _ in range(6)]
    assert controller.status.progress.last_update_time != before
    assert set(writes) == {StatusWrite.NONE, StatusWrite.SELDOM}


def test_what_is_merely_seen_of_members_can_wait_for_more_of_it() -> None:
    controller = running("spec.actors.replicas=4")
    for ready in (1, 2, 3):
        phases = {f"actor_{k}": Phase.READY if k < ready else Phase.STARTING for k in range(4)}
        found = turn_of(controller, 1.0, members=members(actors=4, **phases))
        assert found.decision.status.actors.ready == ready
    assert found.write is StatusWrite.SOON


def test_a_turn_knows_how_long_its_session_lasts(controller: Controller) -> None:
    assert turn_of(controller, 1.0).elapsed_seconds == 0.0
    assert turn_of(controller, 1.0, Session(elapsed_seconds=12.5)).elapsed_seconds == 12.5

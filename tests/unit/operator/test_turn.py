"""When a status has to be stored: before anything that it must not forget, and seldom where it tells progress alone."""

from __future__ import annotations

from typing import Any

import pytest
from rljob.api.status import RLJobStatus
from rljob_operator.core.desired import DesiredState, Session
from rljob_operator.core.member import Phase
from rljob_operator.core.observed import Observation
from rljob_operator.core.turn import StatusWrite, Turn, turn

from tests.support.controller import START, Controller, make_job, members, running, sample

INTERNAL = ("spec.autoscaling={mode: Internal, minReplicas: 2, maxReplicas: 2}",)
FIGURES: dict[str, Any] = {
    "consumption_per_second": 500.0,
    "production_per_second": 500.0,
    "queue_depth_batches": 2.0,
    "queue_bound_batches": 10.0,
    "learner_wait_fraction": 0.1,
    "actors_blocked_fraction": 0.1,
}


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
    controller = Controller(make_job("spec.actors.replicas=3", "spec.actors.startupWave=1"))
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


def test_a_look_that_finds_nothing_new_writes_nothing() -> None:
    controller = running()
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


def test_a_turn_knows_how_long_its_session_lasts() -> None:
    controller = running()
    assert turn_of(controller, 1.0).elapsed_seconds == 0.0
    assert turn_of(controller, 1.0, Session(elapsed_seconds=12.5)).elapsed_seconds == 12.5

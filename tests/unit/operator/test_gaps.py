"""A machine that sleeps, a clock that is set, a controller that was away: none of them lets what is waited for run out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rljob_operator.core.desired import Session
from rljob_operator.core.member import Phase

from tests.support.controller import START, Controller, exited, make_job, members, running, sample, verified

HOUR = 3600.0
GAPS = pytest.mark.parametrize("gap", [HOUR, 8 * HOUR])
DEADLINES = (
    "spec.activeDeadlineSeconds=",
    "spec.progressDeadlineSeconds=200",
    "spec.startupDeadlineSeconds=100",
    "spec.failurePolicy.resetAfterSeconds=400",
)


def outcome(controller: Controller) -> str:
    assert controller.last is not None
    return controller.last.outcome.reason if controller.last.outcome is not None else ""


@GAPS
def test_progress_is_waited_for_anew(gap: float) -> None:
    controller = running(*DEADLINES)
    controller.look(150.0)
    controller.jump(gap, learner=None)
    assert outcome(controller) == "", "it has not heard the learner yet"
    controller.look(199.0)
    assert outcome(controller) == ""
    assert controller.reason("Progressing")[1] == "LearnerStalled"
    controller.look(1.0)
    assert outcome(controller) == "ProgressDeadlineExceeded"


@GAPS
def test_startup_is_waited_for_anew(gap: float) -> None:
    controller = Controller(make_job(*DEADLINES), members=members(learner=Phase.STARTING))
    controller.look()
    controller.look(90.0)
    controller.jump(gap)
    controller.look(99.0)
    assert outcome(controller) == ""
    controller.look(1.0)
    assert outcome(controller) == "StartupDeadlineExceeded"


@GAPS
def test_failures_are_not_forgiven_for_it(gap: float) -> None:
    controller = running(*DEADLINES)
    controller.look(members=exited("learner", members()))
    back = tuple(replace(m, incarnation="2") for m in members())
    controller.look(5.0, members=back, learner=sample(START + 5, 1001))
    controller.jump(gap, learner=sample(controller.now + gap, 1002))
    controller.look(199.0, learner=sample(controller.now + 199.0, 1003))
    controller.look(199.0, learner=sample(controller.now + 199.0, 1004))
    assert controller.status.restarts.counted == 1
    controller.look(2.0)
    assert controller.status.restarts.counted == 0


def test_a_controller_that_was_away_counts_the_time_in_which_pods_ran() -> None:
    controller = running(*DEADLINES)
    controller.jump(HOUR)
    assert controller.status.active_seconds >= HOUR


def test_a_laptop_that_slept_counts_no_time() -> None:
    controller = running(*DEADLINES[1:], "spec.activeDeadlineSeconds=300", session=Session(1.0))
    controller.look(60.0)
    active = controller.status.active_seconds
    controller.jump(8 * HOUR, session=Session(61.0))
    assert outcome(controller) == ""
    assert abs(controller.status.active_seconds - active) <= 30, "known to the half minute in which progress is written"


@pytest.mark.parametrize("session", [None, Session(200.0)])
def test_a_clock_that_is_set_back_ends_nothing(session: Session | None) -> None:
    controller = running(*DEADLINES[1:], "spec.activeDeadlineSeconds=300", session=session)
    controller.look(150.0)
    active = controller.status.active_seconds
    controller.jump(-HOUR)
    for updates in range(1001, 1100):
        controller.look(60.0, learner=sample(controller.now + 60.0, updates))
        if controller.now > START + 152.0:
            break
        assert outcome(controller) == ""
        assert controller.status.active_seconds <= active
    controller.look(60.0, learner=sample(controller.now + 60.0, 1100))
    assert controller.reason("Progressing") == ("True", "LearnerAdvancing"), "it is heard again"
    controller.look(120.0)
    assert outcome(controller) == "DeadlineExceeded", "300 s of active time and the hour"


def test_a_checkpoint_that_is_waited_for_is_still_answered_after_the_clock_was_set_back() -> None:
    controller = running()
    controller.look(1.0, checkpoint_requested_at="now", checkpoint=verified(controller.now))
    asked = controller.last.checkpoint_seconds
    controller.jump(-HOUR)
    assert controller.last.checkpoint_seconds == asked
    request = controller.status.controller.checkpoint_request
    assert not request.done, "the one from before the request answers nothing"
    controller.look(1.0, checkpoint=replace(verified(controller.now), requested_seconds=asked))
    request = controller.status.controller.checkpoint_request
    assert request.done, "one that names the request answers it by whatever clock the learner has"

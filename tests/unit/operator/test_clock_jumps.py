"""A wall clock that jumps, a machine that sleeps, a controller that was away: none of them ends a job."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rljob_operator.core.desired import ClockReading
from rljob_operator.core.member import Phase
from rljob_operator.core.wall_clock import WallClock

from tests.support.controller import START, Controller, exited, make_job, members, running, sample, verified

HOUR = 3600.0
JUMPS = pytest.mark.parametrize("jump", [8 * HOUR, -HOUR])
DEADLINES = (
    "spec.activeDeadlineSeconds=300",
    "spec.progressDeadlineSeconds=200",
    "spec.startupDeadlineSeconds=100",
    "spec.failurePolicy.resetAfterSeconds=400",
)


def jump_by(controller: Controller, seconds: float, **world: object) -> None:
    """One look half a second later, at which the clock has leapt; the next look knows nothing of it."""
    controller.jump(0.5 + seconds, jump_seconds=seconds, **world)
    controller.world["jump_seconds"] = 0.0


def outcome(controller: Controller) -> str:
    assert controller.last is not None
    return controller.last.outcome.reason if controller.last.outcome is not None else ""


@JUMPS
def test_progress_is_waited_for_anew(jump: float) -> None:
    controller = running(*DEADLINES)
    controller.look(100.0)
    assert controller.reason("Progressing")[1] == "LearnerStalled"
    jump_by(controller, jump)
    assert outcome(controller) == ""
    controller.look(198.0)
    assert outcome(controller) == ""
    controller.look(1.0)
    assert outcome(controller) == "DeadlineExceeded", "300 s of active time, whatever the clock did"


@JUMPS
def test_a_learner_that_stands_still_is_still_found(jump: float) -> None:
    controller = running("spec.progressDeadlineSeconds=200")
    controller.look(150.0)
    jump_by(controller, jump)
    controller.look(199.0)
    assert outcome(controller) == ""
    assert controller.reason("Progressing")[1] == "LearnerStalled"
    controller.look(1.0)
    assert outcome(controller) == "ProgressDeadlineExceeded"


@JUMPS
def test_startup_is_waited_for_anew(jump: float) -> None:
    controller = Controller(make_job(*DEADLINES), members=members(learner=Phase.STARTING))
    controller.look()
    controller.look(90.0)
    jump_by(controller, jump)
    controller.look(99.0)
    assert outcome(controller) == ""
    controller.look(1.0)
    assert outcome(controller) == "StartupDeadlineExceeded"


@JUMPS
def test_failures_are_not_forgiven_for_it(jump: float) -> None:
    controller = running(*DEADLINES[3:])
    controller.look(members=exited("learner", members()))
    back = tuple(replace(m, incarnation="2") for m in members())
    controller.look(5.0, members=back, learner=sample(START + 5, 1001))
    jump_by(controller, jump)
    assert controller.status.restarts.counted == 1
    controller.look(390.0)
    assert controller.status.restarts.counted == 1
    controller.look(11.0)
    assert controller.status.restarts.counted == 0


@JUMPS
def test_a_checkpoint_is_not_called_stale_for_it_and_no_time_lies_in_the_future(jump: float) -> None:
    controller = running(checkpoint=verified(START))
    jump_by(controller, jump)
    assert controller.reason("CheckpointValid") == ("True", "Verified")
    assert all(c.last_transition_time <= controller.now for c in controller.status.conditions)


@JUMPS
def test_a_checkpoint_that_is_waited_for_is_asked_for_by_the_new_clock(jump: float) -> None:
    controller = running()
    controller.look(1.0, checkpoint_requested_at="now", checkpoint=verified(controller.now))
    jump_by(controller, jump)
    assert controller.last is not None
    assert controller.last.checkpoint_seconds == controller.now
    request = controller.status.controller.checkpoint_request
    assert request is not None
    assert not request.done, "the one from before the request answers nothing, though its time be in the future"
    controller.look(1.0, checkpoint=replace(verified(START), requested_seconds=controller.now))
    request = controller.status.controller.checkpoint_request
    assert request is not None
    assert request.done, "one that names the request answers it by whatever clock the learner has"


def test_a_controller_that_was_away_waits_anew_but_counts_the_time() -> None:
    controller = running("spec.progressDeadlineSeconds=200", "spec.activeDeadlineSeconds=")
    controller.jump(HOUR, learner=None)
    assert outcome(controller) == "", "it has not heard the learner yet"
    assert controller.status.active_seconds >= HOUR
    controller.look(199.0)
    assert outcome(controller) == ""
    controller.look(1.0)
    assert outcome(controller) == "ProgressDeadlineExceeded"


def test_a_controller_that_finds_its_past_in_the_future_counts_no_time() -> None:
    controller = running(*DEADLINES)
    controller.look(60.0)
    active = controller.status.active_seconds
    controller.jump(-HOUR)
    assert abs(controller.status.active_seconds - active) <= 30, "known to the half minute in which progress is written"
    controller.look(199.0)
    assert outcome(controller) == ""


def test_a_clock_tells_leaps_from_time_that_passed() -> None:
    wall, steady = 1000.0, 50.0
    clock = WallClock(lambda: wall, lambda: steady)
    assert clock.read() == ClockReading(1000.0, 0.0)
    wall, steady = 1600.0, 650.0
    assert clock.read() == ClockReading(1600.0, 0.0), "ten minutes passed"
    wall, steady = wall + 0.5 + 8 * HOUR, steady + 0.5
    assert clock.read() == ClockReading(wall, 8 * HOUR), "asleep, or set"
    wall, steady = wall + 0.5 - HOUR, steady + 0.5
    assert clock.read() == ClockReading(wall, -HOUR)
    for _ in range(100):
        wall, steady = wall + 1.1, steady + 1.0
        assert clock.read() == ClockReading(wall, 0.0), "a clock that is corrected in passing does not jump"
    later = WallClock(lambda: wall + 100.0, lambda: steady + 10.0, clock.offset_seconds)
    assert later.read() == ClockReading(wall + 100.0, pytest.approx(90.0)), (
        "nor is one between two controllers overlooked"
    )

"""Deadlines: what each clock counts, and when it stands still."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rljob.api.conditions import Reason
from rljob_operator.core.member import Phase, Role

from tests.support.controller import (
    START,
    Controller,
    exited,
    gone,
    make_job,
    member,
    members,
    running,
    sample,
    verified,
)

SUSPENDED = "spec.suspend=true"


def reason(controller: Controller) -> str:
    assert controller.last is not None
    return controller.last.outcome.reason if controller.last.outcome is not None else ""


def test_no_deadline_counts_while_a_part_waits_for_a_place() -> None:
    sets = ("spec.startupDeadlineSeconds=60", "spec.progressDeadlineSeconds=100")
    unplaced = {"waiting": Reason.UNSCHEDULABLE, "waiting_message": "0/3 nodes are available", "placed": False}
    stuck = member("learner", Phase.STARTING, since_seconds=START, **unplaced)
    seen = (member("replay-0"), stuck, member("actor-0", Phase.STARTING), member("actor-1", Phase.STARTING))
    controller = Controller(make_job(*sets), members=seen)
    controller.look()
    assert controller.look(100_000.0).outcome is None
    assert controller.status.active_seconds == 0, "nor does activeDeadlineSeconds, an hour"
    ready = controller.status.condition("Ready")
    assert ready.message == "learner waits since 2023-11-14T22:13:20Z: 0/3 nodes are available"
    controller.look(1.0, members=(member("replay-0"), member("learner", Phase.STARTING), *seen[2:]))
    controller.look(59.0)
    assert reason(controller) == ""
    controller.look(1.0)
    assert reason(controller) == "StartupDeadlineExceeded"

    for name in ("learner", "replay-0"):
        up = running(*sets)
        away = member(name, Phase.STARTING, since_seconds=up.now, **unplaced)
        again = up.look(1.0, members=(*gone(name), away))
        for _ in range(50):
            again = up.look(30.0)
        assert again.outcome is None, "a node that is gone is no learner that stands still"
        up.look(1.0, members=members())
        assert reason(up) == ""


def test_a_member_that_ends_again_and_again_does_not_hold_the_deadline_up() -> None:
    controller = Controller(make_job("spec.startupDeadlineSeconds=60", "spec.backoffLimit=1000"))
    for second in range(12):
        dead = exited(
            "learner", members(), incarnation=f"life-{second}", since_seconds=controller.now, ready_seconds=None
        )
        controller.look(2.5, members=dead)
        assert reason(controller) == ""
        fresh = member("learner", Phase.STARTING, placed=False, since_seconds=controller.now)
        controller.look(2.5, members=(*gone("learner"), fresh))
    controller.look(2.5, members=(*gone("learner"), member("learner", Phase.STARTING)))
    assert reason(controller) == "StartupDeadlineExceeded"


def test_startup_deadline_names_who_is_missing() -> None:
    stuck = member("actor-0", Phase.STARTING, waiting="ImagePullFailed", waiting_message="no such image")
    seen = (member("replay-0"), member("learner"), stuck)
    controller = Controller(make_job("spec.startupDeadlineSeconds=60"), members=seen)
    controller.look()
    controller.look(59.0)
    assert reason(controller) == ""
    assert controller.last.requeue_seconds == 1.0
    decision = controller.look(1.0)
    assert decision.outcome.reason == "StartupDeadlineExceeded"
    assert decision.outcome.message == ("after 60 seconds not ready: actor-0 (ImagePullFailed: no such image)")


def test_startup_is_over_once_all_were_ready() -> None:
    controller = running("spec.startupDeadlineSeconds=60")
    controller.look(1000.0, members=exited("actor-0", exited("actor-1", members())), learner=sample(START + 1001, 1001))
    assert reason(controller) == ""


def test_startup_counts_anew_after_a_suspension() -> None:
    controller = running("spec.startupDeadlineSeconds=60", "spec.checkpoint.onSuspend=Skip")
    controller.job = make_job("spec.startupDeadlineSeconds=60", "spec.checkpoint.onSuspend=Skip", SUSPENDED)
    controller.look()
    controller.look(members=())
    controller.look(100_000.0)
    controller.job = make_job("spec.startupDeadlineSeconds=60")
    controller.look(members=members(learner=Phase.STARTING))
    controller.look(59.0)
    assert reason(controller) == ""
    controller.look(1.0)
    assert reason(controller) == "StartupDeadlineExceeded"


def test_progress_deadline_acts_on_a_learner_that_stands_still_whatever_it_answers() -> None:
    for answers in (True, False):
        controller = running("spec.progressDeadlineSeconds=100")
        last = START + 1.0
        for second in range(1, 100):
            controller.look(1.0, learner=sample(last + second, 1000) if answers else sample(last, 1000))
            assert reason(controller) == ""
        stalled = controller.status.condition("Progressing")
        assert (stalled.status, stalled.reason) == ("False", "LearnerStalled")
        assert stalled.last_transition_time <= last + 27, "well before the deadline acts"
        controller.look(1.0)
        assert reason(controller) == "ProgressDeadlineExceeded"


def test_a_replay_that_fills_is_progress() -> None:
    controller = Controller(make_job("spec.progressDeadlineSeconds=100"), members=members(), learner=sample(updates=0))

    def look(items: int, state: str = "filling", steps_per_second: float = 20.0) -> None:
        figures = {"replay": {"items": items, "state": state}, "steps_per_second": steps_per_second}
        controller.look(20.0, learner=sample(controller.now + 20, 0, **figures))

    for seen in range(10):
        look(100 * seen)
        assert reason(controller) == ""
    progressing = controller.status.condition("Progressing")
    assert progressing.message == "the replay has 10 % of the 8,000 transitions that learning begins with"
    look(1000, steps_per_second=0.0)
    assert reason(controller) == "ProgressDeadlineExceeded", "no actor plays any more"


@pytest.mark.parametrize("first", [0, 500], ids=["without a checkpoint", "from a checkpoint"])
def test_a_learner_that_started_anew_is_measured_by_itself(first: int) -> None:
    controller = running("spec.progressDeadlineSeconds=100", "spec.backoffLimit=100")
    controller.look(50.0, members=exited("learner", members()))
    started = controller.now + 1
    back = tuple(replace(m, since_seconds=started, ready_seconds=started) for m in members())
    controller.look(1.0, members=back, learner=sample(started, first))
    for second in range(300):
        controller.look(1.0, learner=sample(controller.now + 1, first + 1 + second))
    assert reason(controller) == "", "the one before had made 1000 updates"
    assert controller.reason("Progressing") == ("True", "LearnerAdvancing")
    for second in range(100):
        assert reason(controller) == ""
        controller.look(1.0, learner=sample(controller.now + 1, first + second % 10))
    assert reason(controller) == "ProgressDeadlineExceeded", "it goes back to its checkpoint again and again"
    outcome = controller.status.controller.outcome
    assert outcome.message == f"the learner has not come beyond update {first + 300:,} for 100 seconds"


def test_progress_is_not_asked_for_before_all_roles_were_up() -> None:
    seen = (member("replay-0"), member("learner"), member("actor-0", Phase.STARTING))
    controller = Controller(make_job("spec.progressDeadlineSeconds=100"), members=seen, learner=sample(updates=0))
    controller.look()
    controller.look(150.0)
    assert reason(controller) == ""
    controller.look(1.0, members=members())
    controller.look(99.0)
    assert reason(controller) == ""
    controller.look(1.0)
    assert reason(controller) == "ProgressDeadlineExceeded", "no update at all is no progress either"


def test_a_learner_on_a_lost_node_has_no_place_so_the_progress_deadline_waits() -> None:
    controller = running("spec.progressDeadlineSeconds=100")
    controller.look(50.0, members=tuple(replace(m, node_lost=m.role is Role.LEARNER) for m in members()))
    controller.look(60.0)
    assert reason(controller) == "", "its node has been away for a minute"
    controller.look(1.0, members=members())
    controller.look(99.0)
    assert reason(controller) == "", "it is back"
    controller.look(1.0)
    assert reason(controller) == "ProgressDeadlineExceeded"


def test_active_deadline_does_not_count_suspension() -> None:
    sets = ("spec.activeDeadlineSeconds=200", "spec.checkpoint.onSuspend=Skip")
    controller = running(*sets)  # 1 s old
    controller.look(99.0, learner=sample(START + 100, 1001))
    controller.job = make_job(*sets, SUSPENDED)
    controller.look(0.0)
    controller.look(0.0, members=())
    assert controller.reason("Suspended") == ("True", "UserRequested")
    assert controller.status.active_seconds == 100
    for _ in range(5):
        assert controller.look(1000.0).requeue_seconds is None, "no timer works while a job is suspended"
        assert reason(controller) == ""
    controller.job = make_job(*sets)
    controller.look(0.0, members=members(), learner=sample(controller.now, 1001))
    controller.look(99.0, learner=sample(controller.now + 99, 1002))
    assert reason(controller) == ""
    controller.look(1.0)
    assert reason(controller) == "DeadlineExceeded"


@pytest.mark.parametrize("jump", [-86_400.0, -1.0])
def test_a_clock_that_is_set_back_ends_nothing(jump: float) -> None:
    controller = running("spec.activeDeadlineSeconds=1000", "spec.progressDeadlineSeconds=100")
    controller.look(jump)
    assert reason(controller) == ""
    assert controller.status.active_seconds >= 0


def test_a_stall_is_starvation_where_the_learner_waits() -> None:
    controller = running("spec.progressDeadlineSeconds=100")
    controller.look(30.0, learner=sample(START + 31, 1000, **{"learner_wait_fraction": 0.97}))
    assert controller.reason("Progressing") == ("False", "Starved")
    assert controller.reason("Ready") == ("True", "Degraded")
    controller.look(30.0)
    assert controller.reason("Progressing") == ("False", "LearnerStalled"), "an old sample proves no starvation"


def test_a_stand_still_of_both_sides_is_said_at_once_with_its_cause() -> None:
    controller = running("spec.progressDeadlineSeconds=1000")
    cause = "replay-0 blocks inserts"
    controller.look(3.0, learner=sample(START + 4, 1001, standstill=cause))
    assert controller.reason("Progressing") == ("False", "ExperienceBlocked")
    assert controller.status.condition("Progressing").message == cause
    assert controller.reason("Ready") == ("True", "Degraded")
    controller.look(3.0, learner=sample(START + 7, 1002))
    assert controller.reason("Progressing") == ("True", "LearnerAdvancing")


def test_a_learner_that_gives_up_many_unrolls_says_so_in_ready() -> None:
    controller = running("spec.progressDeadlineSeconds=1000")
    controller.look(3.0, learner=sample(START + 4, 1001, given_up="97% were too old"))
    condition = controller.status.condition("Ready")
    assert (condition.status, condition.reason, condition.message) == ("True", "Degraded", "97% were too old")
    controller.look(3.0, learner=sample(START + 7, 1002))
    assert controller.reason("Ready") == ("True", "Running")


def test_checkpoints_grow_stale() -> None:
    controller = running("spec.checkpoint.intervalSeconds=10", checkpoint=verified(START))
    assert controller.reason("CheckpointValid") == ("True", "Verified")
    controller.look(31.0)
    assert controller.reason("CheckpointValid") == ("False", "Stale")

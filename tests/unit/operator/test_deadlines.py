"""Deadlines: what each clock counts, and when it stands still, as while a machine sleeps or no controller looks."""

from dataclasses import replace

import pytest
from rljob.api.conditions import Reason
from rljob_operator.core.desired import Session
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
STARTUP, PROGRESS = "StartupDeadlineExceeded", "ProgressDeadlineExceeded"


def test_no_deadline_counts_while_a_part_waits_for_a_place() -> None:
    sets = ("spec.startupDeadlineSeconds=60", "spec.progressDeadlineSeconds=100")
    unplaced = {"waiting": Reason.UNSCHEDULABLE, "waiting_message": "0/3 nodes are available", "placed": False}
    stuck = member("learner", Phase.STARTING, since_seconds=START, **unplaced)
    seen = (member("replay-0"), stuck, member("actor-0", Phase.STARTING), member("actor-1", Phase.STARTING))
    controller = Controller(make_job(*sets), members=seen)
    # Nor does activeDeadlineSeconds, an hour.
    assert (controller.ends(0.0, 4000.0), controller.status.active_seconds) == (["", ""], 0)
    assert controller.said("Ready")[2] == "learner has waited since 2023-11-14T22:13:20Z: 0/3 nodes are available"
    controller.look(1.0, members=(member("replay-0"), member("learner", Phase.STARTING), *seen[2:]))
    assert controller.ends(59.0, 1.0) == ["", STARTUP]

    for name in ("learner", "replay-0"):
        up = running(*sets)
        away = member(name, Phase.STARTING, since_seconds=up.now, **unplaced)
        up.look(1.0, members=(*gone(name), away))
        assert up.ends(1500.0) == [""], "a node that is gone is no learner that stands still"
        up.after(1.0, {"members": members()}, end="")


def test_a_member_that_ends_again_and_again_does_not_hold_the_deadline_up() -> None:
    controller = Controller(make_job("spec.startupDeadlineSeconds=60", "spec.backoffLimit=1000"))
    for second in range(12):
        life = {"incarnation": f"life-{second}", "since_seconds": controller.now, "ready_seconds": None}
        controller.after(2.5, {"members": exited("learner", members(), **life)}, end="")
        fresh = member("learner", Phase.STARTING, placed=False, since_seconds=controller.now)
        controller.look(2.5, members=(*gone("learner"), fresh))
    controller.after(2.5, {"members": (*gone("learner"), member("learner", Phase.STARTING))}, end=STARTUP)


def test_startup_deadline_names_who_is_missing() -> None:
    stuck = member("actor-0", Phase.STARTING, waiting="ImagePullFailed", waiting_message="no such image")
    seen = (member("replay-0"), member("learner"), stuck)
    controller = Controller(make_job("spec.startupDeadlineSeconds=60"), members=seen)
    controller.look()
    controller.after(59.0, end="", requeue_seconds=1.0)
    outcome = controller.after(1.0, end=STARTUP).outcome
    assert outcome.message == "not ready after 60 seconds: actor-0 (ImagePullFailed: no such image)"


def test_startup_is_over_once_all_were_ready() -> None:
    down = exited("actor-0", exited("actor-1", members()))
    controller = running("spec.startupDeadlineSeconds=60")
    controller.after(1000.0, {"members": down, "learner": sample(START + 1001, 1001)}, end="")


def test_startup_counts_anew_after_a_suspension() -> None:
    patient = "spec.startupDeadlineSeconds=60"
    controller = running(patient)
    controller.story(
        (0.0, {"job": make_job(patient, SUSPENDED)}, {}),
        (0.0, {"members": ()}, {}),
        (4000.0, {}, {}),
        (0.0, {"job": make_job(patient), "members": members(learner=Phase.STARTING)}, {}),
    )
    assert controller.ends(59.0, 1.0) == ["", STARTUP]


@pytest.mark.parametrize("answers", [True, False])
def test_progress_deadline_acts_on_a_learner_that_stands_still_whatever_it_answers(answers: bool) -> None:
    controller = running("spec.progressDeadlineSeconds=100")
    last = START + 1.0
    for second in range(1, 100):
        controller.after(1.0, {"learner": sample(last + (second if answers else 0), 1000)}, end="")
    stalled = controller.status.condition("Progressing")
    assert (stalled.status, stalled.reason) == ("False", "LearnerStalled")
    assert stalled.last_transition_time <= last + 27, "well before the deadline acts"
    assert controller.ends(1.0) == [PROGRESS]


def test_a_replay_that_fills_is_progress() -> None:
    controller = Controller(make_job("spec.progressDeadlineSeconds=100"), members=members(), learner=sample(updates=0))

    def look(items: int, end: str, steps_per_second: float = 20.0) -> None:
        figures = {"replay": {"items": items, "state": "filling"}, "steps_per_second": steps_per_second}
        controller.after(20.0, {"learner": sample(controller.now + 20, 0, **figures)}, end=end)

    for seen in range(10):
        look(100 * seen, "")
    assert (
        controller.said("Progressing")[2] == "the replay has 10 % of the 8,000 transitions that learning needs to start"
    )
    look(1000, PROGRESS, steps_per_second=0.0)  # no actor plays any more


@pytest.mark.parametrize("first", [0, 500], ids=["without a checkpoint", "from a checkpoint"])
def test_a_learner_that_started_anew_is_measured_by_itself(first: int) -> None:
    controller = running("spec.progressDeadlineSeconds=100", "spec.backoffLimit=100")
    controller.look(50.0, members=exited("learner", members()))
    started = controller.now + 1
    back = tuple(replace(m, since_seconds=started, ready_seconds=started) for m in members())
    controller.look(1.0, members=back, learner=sample(started, first))
    for second in range(300):
        controller.look(1.0, learner=sample(controller.now + 1, first + 1 + second))
    controller.expect(end="", Progressing=("True", "LearnerAdvancing"))  # the one before had made 1000 updates
    for second in range(100):
        controller.expect(end="")
        controller.look(1.0, learner=sample(controller.now + 1, first + second % 10))
    controller.expect(end=PROGRESS)  # it goes back to its checkpoint again and again
    outcome = controller.status.controller.outcome
    assert outcome.message == f"the learner has not advanced beyond update {first + 300:,} for 100 seconds"


def test_progress_is_not_asked_for_before_all_roles_were_up() -> None:
    seen = (member("replay-0"), member("learner"), member("actor-0", Phase.STARTING))
    controller = Controller(make_job("spec.progressDeadlineSeconds=100"), members=seen, learner=sample(updates=0))
    assert controller.ends(0.0, 150.0) == ["", ""]
    controller.look(1.0, members=members())
    assert controller.ends(99.0, 1.0) == ["", PROGRESS], "no update at all is no progress either"


def test_a_learner_on_a_lost_node_has_no_place_so_the_progress_deadline_waits() -> None:
    lost = tuple(replace(m, node_lost=m.role is Role.LEARNER) for m in members())
    running("spec.progressDeadlineSeconds=100").story(
        (50.0, {"members": lost}, {}),
        (60.0, {}, {"end": ""}),  # its node has been away for a minute
        (1.0, {"members": members()}, {}),
        (99.0, {}, {"end": ""}),
        (1.0, {}, {"end": PROGRESS}),
    )


def test_active_deadline_does_not_count_suspension() -> None:
    limit = "spec.activeDeadlineSeconds=200"
    controller = running(limit)  # 1 s old
    controller.story(
        (99.0, {"learner": sample(START + 100, 1001)}, {}),
        (0.0, {"job": make_job(limit, SUSPENDED)}, {}),
        (0.0, {"members": ()}, {"Suspended": ("True", "UserRequested"), "active_seconds": 100}),
        *[(1000.0, {}, {"requeue_seconds": None, "end": ""})] * 5,  # no timer works while a job is suspended
    )
    now = controller.now
    controller.story(
        (0.0, {"job": make_job(limit), "members": members(), "learner": sample(now, 1001)}, {}),
        (99.0, {"learner": sample(now + 99, 1002)}, {"end": ""}),
        (1.0, {}, {"end": "DeadlineExceeded"}),
    )


def test_a_stall_is_starvation_where_the_learner_waits() -> None:
    controller = running("spec.progressDeadlineSeconds=100")
    starved = {"learner": sample(START + 31, 1000, learner_wait_fraction=0.97)}
    controller.after(30.0, starved, Progressing=("False", "Starved"), Ready=("True", "Degraded"))
    controller.after(30.0, Progressing=("False", "LearnerStalled"))  # an old sample proves no starvation


@pytest.mark.parametrize(
    ("figures", "type", "said", "back"),
    [
        (
            {"standstill": "replay-0 blocks inserts"},
            "Progressing",
            ("False", "ExperienceBlocked", "replay-0 blocks inserts"),
            ("True", "LearnerAdvancing"),
        ),
        ({"given_up": "97% were too old"}, "Ready", ("True", "Degraded", "97% were too old"), ("True", "Running")),
    ],
)
def test_what_keeps_experience_from_the_learner_is_said_at_once_with_its_cause(
    figures: dict[str, str], type: str, said: tuple[str, str, str], back: tuple[str, str]
) -> None:
    controller = running("spec.progressDeadlineSeconds=1000")
    controller.after(3.0, {"learner": sample(START + 4, 1001, **figures)}, Ready=("True", "Degraded"))
    assert controller.said(type) == said
    controller.look(3.0, learner=sample(START + 7, 1002))
    assert controller.reason(type) == back


def test_checkpoints_grow_stale() -> None:
    controller = running("spec.checkpoint.intervalSeconds=10", checkpoint=verified(START))
    controller.expect(CheckpointValid=("True", "Verified"))
    controller.after(31.0, CheckpointValid=("False", "Stale"))


HOUR = 3600.0
GAPS = pytest.mark.parametrize("gap", [HOUR, 8 * HOUR])
DEADLINES = (
    "spec.activeDeadlineSeconds=",
    "spec.progressDeadlineSeconds=200",
    "spec.startupDeadlineSeconds=100",
)


@GAPS
def test_progress_is_waited_for_anew(gap: float) -> None:
    controller = running(*DEADLINES)
    controller.look(150.0)
    controller.jump(gap, learner=None)
    controller.expect(end="")  # it has not heard the learner yet
    controller.story((199.0, {}, {"end": "", "Progressing": ("False", "LearnerStalled")}), (1.0, {}, {"end": PROGRESS}))


@GAPS
def test_startup_is_waited_for_anew(gap: float) -> None:
    controller = Controller(make_job(*DEADLINES), members=members(learner=Phase.STARTING))
    controller.look()
    controller.look(90.0)
    controller.jump(gap)
    assert controller.ends(99.0, 1.0) == ["", "StartupDeadlineExceeded"]


@GAPS
def test_failures_are_not_forgiven_for_it(gap: float, soon_forgiven: float) -> None:
    controller = running(*DEADLINES)
    controller.look(members=exited("learner", members()))
    controller.look(5.0, members=tuple(replace(m, incarnation="2") for m in members()), learner=sample(START + 5, 1001))
    controller.jump(gap, learner=sample(controller.now + gap, 1002))
    controller.after(soon_forgiven - 1.0, {"learner": sample(controller.now + 99.0, 1003)}, counted=1)
    controller.after(2.0, counted=0)


def test_a_controller_that_was_away_counts_the_time_in_which_pods_ran() -> None:
    controller = running(*DEADLINES)
    controller.jump(HOUR)
    assert controller.status.active_seconds >= HOUR


def test_a_laptop_that_slept_counts_no_time() -> None:
    controller = running(*DEADLINES[1:], "spec.activeDeadlineSeconds=300", session=Session(1.0))
    controller.look(60.0)
    active = controller.status.active_seconds
    controller.jump(8 * HOUR, session=Session(61.0))
    controller.expect(end="")
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
        controller.expect(end="")
        assert controller.status.active_seconds <= active
    # It is heard again.
    controller.after(60.0, {"learner": sample(controller.now + 60.0, 1100)}, Progressing=("True", "LearnerAdvancing"))
    assert controller.ends(120.0) == ["DeadlineExceeded"], "300 s of active time and the hour"


def test_a_checkpoint_that_is_waited_for_is_still_answered_after_the_clock_was_set_back(controller: Controller) -> None:
    controller.look(1.0, checkpoint_requested_at="now", checkpoint=verified(controller.now))
    asked = controller.last.checkpoint_seconds
    assert controller.jump(-HOUR).checkpoint_seconds == asked
    assert not controller.status.controller.checkpoint_request.done, "the one from before the request answers nothing"
    controller.look(1.0, checkpoint=replace(verified(controller.now), requested_seconds=asked))
    assert controller.status.controller.checkpoint_request.done, "one that names it does, whatever the learner's clock"

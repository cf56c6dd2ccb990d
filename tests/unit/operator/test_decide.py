"""`decide`: what starts, what leaves, in which order; how a job ends, once; and that nothing is remembered elsewhere."""

import re
from dataclasses import replace

import pytest
from rljob.api import load_manifest
from rljob_operator.core.decision import End
from rljob_operator.core.desired import Refusal, Session
from rljob_operator.core.member import Phase, Role
from rljob_operator.core.rules.failures import Reason
from rljob_operator.core.rules.start_and_drain import STARTUP_WAVE

from tests.support.controller import (
    METRIC,
    SERVERS,
    START,
    Controller,
    evaluation,
    evaluations,
    exited,
    gone,
    make_job,
    member,
    members,
    reporting,
    running,
    sample,
    verified,
)
from tests.support.paths import MANIFESTS

# --- coming up


def test_all_that_learning_needs_starts_at_once_and_the_rest_once_that_has_places() -> None:
    """Half a job that waits for its other half would hold its places on a full cluster for ever."""
    bounds = "spec.autoscaling={mode: Internal, minReplicas: 2, maxReplicas: 9}"
    controller = Controller(make_job(*SERVERS, "spec.actors.replicas=5", bounds), members=())
    core = ("replay-0", "learner", "inference-0", "actor-0", "actor-1")
    assert controller.look().start == core
    stuck = {"waiting": Reason.UNSCHEDULABLE, "waiting_message": "no node", "placed": False}
    seen = tuple(member(name, Phase.STARTING) for name in core)
    assert controller.look(600.0, members=(*seen[:1], replace(seen[1], **stuck), *seen[2:])).start == ()
    controller.after(1.0, {"members": seen}, start=("actor-2", "actor-3", "actor-4", "evaluator"), state="Starting")


def test_actors_start_in_waves() -> None:
    wave = [f"actor-{k}" for k in range(1, 1 + STARTUP_WAVE)]
    controller = Controller(make_job("spec.actors.replicas=50"), members=gone("evaluator", seen=members(1)))
    assert controller.look().start == (*wave, "evaluator")
    up = (*members(0), member("actor-0"))
    first = (*up, *(member(name, Phase.STARTING) for name in wave[1:]))
    assert controller.look(members=first).start == ("actor-1",)
    assert len(controller.look(members=(*up, *map(member, wave))).start) == 50 - 1 - STARTUP_WAVE


def test_running_needs_an_update_after_the_start() -> None:
    controller = Controller(make_job())
    controller.after(0.0, {"learner": sample(updates=0)}, state="Starting")
    controller.after(1.0, {"learner": sample(START + 1, updates=1)}, state="Running")


def test_a_job_with_a_checkpoint_restores() -> None:
    controller = Controller(make_job(), checkpoint=verified(START - 50), members=())
    assert (controller.look().state, controller.status.checkpoint.step) == ("Restoring", 1000)


ONE_BY_ONE = [("replay-0",), ("learner",), ("actor-0",), ("evaluator",), ("learner", "actor-1")]


@pytest.mark.parametrize("names", ONE_BY_ONE)
def test_members_that_were_killed_come_back_at_once_each_on_its_own(names: tuple[str, ...]) -> None:
    seen = members()
    for name in names:
        seen = exited(name, seen, exit_code=-9)
    running().after(1.0, {"members": seen}, start=names, end="")


def test_processes_of_one_learner_start_and_end_together_each_time_in_a_later_epoch() -> None:
    job = make_job("spec.learner.processes=2", "spec.replay.shards=2")
    controller = Controller(job, members=())
    learners = ("learner-0", "learner-1")
    others = tuple(map(member, ("replay-0", "replay-1", "actor-0", "actor-1", "evaluator")))
    assert set(learners) < set(controller.look().start)
    assert controller.status.controller.learner_epoch == 1
    up = (*others, *(member(name) for name in learners))
    controller.after(1.0, {"members": up}, start=(), drain=())
    lost = exited("learner-1", up, exit_code=-9)
    controller.after(20.0, {"members": lost}, start=(), drain=("learner-0",))
    both = exited("learner-0", lost, exit_code=68)
    seen = controller.look(1.0, members=both)
    assert (seen.start, controller.status.controller.learner_epoch) == (learners, 2)
    assert (controller.status.restarts.counted, controller.status.restarts.ignored) == (1, 1)


def test_an_evaluator_that_is_no_longer_wanted_leaves() -> None:
    unasked = ("spec.successPolicy.targetReturn=", "spec.evaluator.triggerReturn=")
    controller = running(*unasked)
    assert (
        controller.look(job=make_job(*unasked, "spec.evaluator.enabled=false")).drain,
        controller.look(1.0, members=gone("evaluator")).start,
    ) == (("evaluator",), ())
    assert controller.look(1.0, job=make_job(*unasked)).start == ("evaluator",)


def test_nothing_starts_for_a_refused_spec() -> None:
    refusal = Refusal(Reason.POD_TEMPLATE_REJECTED, "spec.actors.podTemplate: unknown field hostPot")
    controller = Controller(make_job(), members=(), refusal=refusal)
    controller.after(0.0, start=(), state="Accepting", requeue_seconds=None, start_time=None)  # no clock runs
    up = running()
    assert up.look(1.0, members=gone("actor-0"), refusal=refusal).start == ()
    assert up.look(1.0, refusal=replace(refusal, blocking=False)).start == ("actor-0",), (
        "an older good spec is in force"
    )
    up.expect(Accepted=("False", "PodTemplateRejected"))


# --- success


@pytest.mark.parametrize(
    ("sets", "figures", "reason"),
    [
        ((), {"evaluations": [evaluation(18.5)]}, "TargetReturnReached"),
        ((METRIC,), {"evaluations": [reporting(is_success=0.9)]}, "MetricReached"),
        (("spec.successPolicy.rawFrames=1000000",), {"raw_frames_total": 10**6}, "StepBudgetReached"),
        (
            ("spec.earlyStopping.plateau={patienceEvaluations: 3, minDelta: 0.5}",),
            {"evaluations": evaluations(1.0, 2.0, 2.4, 1.0, 2.5)},
            "EarlyStopped",
        ),
    ],
)
def test_success(sets: tuple[str, ...], figures: dict, reason: str) -> None:
    controller = running(*sets)
    decision = controller.look(1.0, learner=sample(START + 2, 1001, **figures))
    assert (decision.outcome.end, decision.outcome.reason) == (End.COMPLETE, reason)
    assert (decision.state, decision.finished) == ("Finishing", False), "members still run, so the job is not over yet"
    controller.after(
        1.0,
        {"members": ()},
        Complete=("True", reason),
        Ready=("True", "Complete"),
        Stalled=("", ""),
        finished=True,
    )
    assert controller.status.completion_time == controller.now


@pytest.mark.parametrize(("code", "lost"), [(-9, True), (137, True), (143, False)])
def test_the_end_tells_of_a_learner_that_was_killed_while_it_saved(code: int, lost: bool) -> None:
    controller = running("spec.successPolicy.rawFrames=1000000")
    controller.look(1.0, learner=sample(START + 2, 1001, raw_frames_total=10**6))
    learner = member("learner", Phase.EXITED, asked=True, exit_code=code)
    assert ("killed while it saved" in controller.look(1.0, members=(learner,)).outcome.message) == lost


PLATEAU = "spec.earlyStopping.plateau={patienceEvaluations: 3, minDelta: 0.5}"
WINDOW = "spec.successPolicy.targetReturn={value: 18, windowEvaluations: 2}"
METRICS = "spec.successPolicy={metric: {name: is_success, value: 0.5, windowEvaluations: 2}}"
LOW, HIGH, WITHOUT = reporting(is_success=0.3), reporting(is_success=0.75, way=2.0), reporting(way=2.0)
OF_SOME = HIGH | {"metric_games": {"is_success": 1}}
GIVEN_UP = [evaluation(0.0, finished=False, version=9)] * 3


@pytest.mark.parametrize(
    ("sets", "figures", "said"),
    [
        ((), [evaluation(20.0, finished=False)], None),  # one that was given up early is no verdict
        # A plateau needs its patience: 1.6 is better than 1.0 by more than 0.5 and begins the count anew.
        ((PLATEAU,), evaluations(1.0, 2.0, 2.4, 1.0) + GIVEN_UP, None),
        ((PLATEAU,), evaluations(1.0, 1.4, 1.5, 1.6, 1.4, 1.5) + GIVEN_UP, None),
        ((WINDOW,), [evaluation(17.0), evaluation(18.9)], None),
        ((WINDOW,), [evaluation(17.0), evaluation(18.9), evaluation(17.3)], "mean return 18.10"),
        # A metric is a mean over whole evaluations that have it of all their games.
        ((METRICS,), [HIGH], None),
        ((METRICS,), [LOW, LOW], None),
        ((METRICS,), [HIGH, WITHOUT], None),
        ((METRICS,), [WITHOUT, HIGH], None),
        ((METRICS,), [HIGH, OF_SOME], None),
        ((METRICS,), [HIGH, reporting(is_success=1.0) | {"finished": False}], None),
        (
            (METRICS,),
            [WITHOUT, LOW, HIGH],
            "^is_success 0.525, as the environment reports it, over 20 games in each of 2.*target 0.5$",
        ),
    ],
)
def test_which_evaluations_end_a_job(sets: tuple[str, ...], figures: list[dict], said: str | None) -> None:
    outcome = running(*sets).look(1.0, learner=sample(START + 2, 1001, evaluations=figures)).outcome
    assert outcome is None if said is None else re.search(said, outcome.message)


def test_a_plateau_may_be_longer_than_what_the_learner_lists() -> None:
    controller = running("spec.earlyStopping.plateau={patienceEvaluations: 2500}", "spec.activeDeadlineSeconds=")
    listed = evaluations(18.0)
    for version in range(2, 2501, 500):
        listed = (listed + evaluations(*[17.0] * 500, first=version))[-1000:]
        decision = controller.look(1.0, learner=sample(controller.now + 1, 1000 + version, evaluations=listed))
        assert (decision.outcome is None) == (version < 2000)
    assert "2500 evaluations in a row were not better than 18.00" in decision.outcome.message


def test_an_evaluation_counts_once_whatever_the_learner_goes_back_to() -> None:
    controller = running("spec.earlyStopping.plateau={patienceEvaluations: 3}")
    for listed in (evaluations(5.0, 4.0), evaluations(5.0), evaluations(5.0, 4.0, 4.0), evaluations(5.0, 4.0, 4.0)):
        assert controller.look(1.0, learner=sample(controller.now + 1, 1001, evaluations=listed)).outcome is None


def test_a_metric_that_not_all_games_have_is_said_with_those_that_there_are() -> None:
    controller = running(METRIC)
    for reported, there in (
        (reporting(), "does not report as a finite number .*: it reports nothing"),
        (reporting(success=1.0, way=2.0), "does not report .*: it reports success, way"),
        (
            OF_SOME,
            "reported as a finite number in 1 of 20 games: .* report it at the end of every episode, 0 where it is not so",
        ),
    ):
        learner = sample(controller.now + 2, 1001, evaluations=[reported])
        assert controller.look(1.0, learner=learner).outcome is None
        *said, message = controller.said("Ready")
        assert said == ["True", "Degraded"]
        assert re.search(f"successPolicy.metric waits for 'is_success', which the environment {there}$", message)
    controller.after(
        1.0,
        {"learner": sample(controller.now + 2, 1002, evaluations=[reporting(is_success=0.0)])},
        Ready=("True", "Running"),
    )


def test_failures_of_an_evaluator_count_where_a_metric_is_waited_for() -> None:
    for sets, counted in (((METRIC,), 1), (("spec.successPolicy={rawFrames: 1000000}",), 0)):
        running(*sets).after(0.0, {"members": exited("evaluator", members())}, counted=counted)


def test_a_learner_that_ends_with_0_was_not_asked_to_and_comes_back(controller: Controller) -> None:
    controller.after(0.0, {"members": exited("learner", members(), exit_code=0)}, end="", start=("learner",), counted=1)
    assert controller.status.failures[-1].reason == "Ended"


# --- the end


def test_the_drain_goes_from_the_outside_in(controller: Controller) -> None:
    controller.after(
        0.0,
        {"learner": sample(START + 2, 1001, evaluations=[evaluation(21.0)])},
        drain=("actor-0", "actor-1", "evaluator"),
    )
    left = gone("actor-0", "actor-1", "evaluator")
    assert controller.look(members=left).drain == ("learner",)
    assert controller.look(members=(left[0], replace(left[1], phase=Phase.DRAINING))).drain == ()
    assert controller.look(members=left[:1]).drain == ("replay-0",)
    assert controller.look(members=()).finished


def test_failure_target_before_failed(controller: Controller) -> None:
    controller.after(
        0.0,
        {"members": exited("actor-0", members(), exit_code=78, last_words="no ROM")},
        FailureTarget=("True", "FailurePolicyRule"),
        Failed=("", ""),
    )
    assert not controller.status.finished
    controller.look(members=())
    failed = ("True", "FailurePolicyRule")
    controller.expect(Failed=failed, Stalled=failed, FailureTarget=failed)
    assert not any(note.text.startswith("Stalled") for note in controller.last.notes), "Failed has said it"


def test_a_finished_job_is_never_touched_again(controller: Controller) -> None:
    controller.look(learner=sample(START + 2, 1001, evaluations=[evaluation(21.0)]))
    controller.look(members=())
    over = controller.status
    for world in (
        {"members": ()},
        {"learner": sample(START + 500, 5)},
        {"session": Session(1.0, None, True)},
        {"members": exited("learner", members(), exit_code=78)},
        {"refusal": Refusal(Reason.INVALID_SPEC, "late")},
    ):
        controller.after(1000.0, world, start=(), finished=True)
        assert controller.status == over
    controller.look(1.0, generation=9)
    told = {"observed_generation": 9, "conditions": controller.status.conditions}
    assert controller.status == over.model_copy(update=told), "a client need not wait for it"
    accepted = controller.status.condition("Accepted")
    assert (accepted.status, accepted.reason, "affects ttlSecondsAfterFinished alone" in accepted.message) == (
        "False",
        "Complete",
        True,
    )
    assert controller.look(members=members()).drain == ("actor-0", "actor-1", "evaluator"), "strays are sent away"


def test_after_a_failure_what_ended_by_itself_stays_for_its_logs() -> None:
    ended = tuple(replace(m, phase=Phase.EXITED, asked=m.role is not Role.LEARNER) for m in members())
    failed = running(keeps_remains=True)
    failed.look(members=exited("learner", members(), exit_code=78))
    assert set(failed.look(1.0, members=ended).remove) == {m.name for m in ended if m.role is not Role.LEARNER}, (
        "what was asked to leave is being deleted, and keeps no logs"
    )
    seen = tuple(replace(m, deleted=True) for m in ended)
    assert set(failed.look(members=seen).remove) == {m.name for m in ended}, "a user has deleted what was kept"


def test_time_to_live() -> None:
    controller = running("spec.ttlSecondsAfterFinished=100", keeps_remains=True)
    controller.look(learner=sample(START + 2, 1001, evaluations=[evaluation(21.0)]))
    assert (controller.look(members=()).delete_job, controller.look(40.0).requeue_seconds) == (False, 60.0)
    assert controller.look(60.0).delete_job


# --- the session of `rljob run`


@pytest.mark.parametrize(
    ("session", "end", "reason"),
    [
        (Session(5.0, None, True), End.INTERRUPTED, "UserRequested"),
        (Session(30.0, 30.0, False), End.STOPPED, "MaxSecondsReached"),
    ],
)
def test_the_end_of_a_session_is_no_end_of_the_job(session: Session, end: End, reason: str) -> None:
    controller = running(session=Session())
    controller.after(
        1.0,
        {"session": session, "members": exited("actor-0", members(), exit_code=78)},
        end=reason,
        finished=False,
        drain=("actor-1", "evaluator"),
    )
    assert controller.last.outcome.end is end
    assert controller.look(members=gone("actor-0", "actor-1", "evaluator")).drain == ("learner",)
    assert controller.look(members=members(0)[:1]).drain == ("replay-0",)
    controller.after(
        1.0,
        {"members": ()},
        finished=True,
        Ready=("False", "SessionEnded"),
        Failed=("", ""),
        FailureTarget=("", ""),
        Complete=("", ""),
    )
    active = controller.status.active_seconds

    assert controller.jump(86_400.0, session=Session()).start == ("replay-0", "learner", "actor-0")
    assert controller.status.active_seconds == active, "the night between two sessions is not active time"
    controller.look(members=members(), checkpoint=verified(START))
    controller.trained(2000)
    controller.expect(state="Running")


def test_a_killed_controller_whose_members_died_too_does_not_count_the_time_between() -> None:
    controller = running(session=Session(100.0))
    controller.look(40.0, session=Session(140.0))
    active = controller.status.active_seconds
    controller.jump(86_400.0, session=Session(0.5), members=(), learner=None)
    controller.expect(spent_active_seconds=active, started=None)
    adopted = running(session=Session(100.0))
    adopted.look(3600.0, session=Session(0.5))
    assert adopted.status.controller.spent_active_seconds == 0, "members that went on were active"


def test_every_example_comes_up() -> None:
    for path in MANIFESTS:
        assert Controller(load_manifest(path), members=()).look().start, path.name

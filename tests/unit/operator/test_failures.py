"""Unexpected ends: each is counted once, what is done about it, and when they are too many."""

from dataclasses import replace
from typing import Any

import pytest
from rljob.api import load_manifest
from rljob_operator.core.member import Phase
from rljob_operator.core.rules.failures import QUICK_ENDS_OF_A_CRASH_LOOP, RESTART_DELAY_SECONDS

from tests.support.controller import (
    CARTPOLE,
    SERVERS,
    STORAGE,
    Controller,
    exited,
    gone,
    make_job,
    member,
    members,
    running,
)


def end_again(controller: Controller, name: str, life: int, *, after: float = 40.0, **fields: Any) -> Any:
    """One more life of ``name`` that ends before it worked."""
    given = {"incarnation": f"{name}-{life}", "since_seconds": controller.now + after, "ready_seconds": None} | fields
    return controller.look(after, members=exited(name, members(), **given))


def test_one_end_is_counted_once_however_often_it_is_seen(controller: Controller) -> None:
    dead = exited("learner", members(), exit_code=-11, last_words="segmentation fault")
    for _ in range(5):
        controller.look(0.1, members=dead)
    [failure] = controller.status.failures
    assert (controller.status.restarts.counted, failure.role, failure.pod_name, failure.exit_code) == (
        1, "Learner", "learner", 139,
    )  # fmt: skip
    assert (failure.reason, failure.action, failure.message) == ("Killed", "RestartRole", "segmentation fault")
    controller.look(1.0, members=exited("learner", members(), incarnation="next", exit_code=143, last_words=""))
    assert controller.status.failures[-1].message == "ended by signal 15"


def test_restarts_that_do_not_help_are_delayed_more_and_more() -> None:
    controller = running("spec.actors.replicas=40", members=members(40))
    for life, delay in enumerate(RESTART_DELAY_SECONDS[1:] + RESTART_DELAY_SECONDS[-1:], start=1):
        decision = end_again(controller, "actor-0", life)
        assert ("actor-0" in decision.start, decision.requeue_seconds) == (False, delay)
        assert "actor-0" not in controller.look(delay - 0.1).start
        assert "actor-0" in controller.look(0.1).start
    controller.look(1.0, members=members(40))
    assert controller.status.controller.members == [], "an actor that works is no longer remembered"


def test_an_actor_that_had_worked_begins_anew(controller: Controller) -> None:
    for life in range(3):
        end_again(controller, "actor-0", life)
    now = controller.now + 50
    worked = exited("actor-0", members(), incarnation="long", since_seconds=now, ready_seconds=now - 10)
    assert controller.look(50.0, members=worked).start == ("actor-0",)


def test_backoff_limit_counts_an_evaluator_that_success_waits_for(controller: Controller) -> None:
    for life in range(4):
        assert end_again(controller, "evaluator", life).outcome is None
    assert end_again(controller, "evaluator", 4, last_words="no display").outcome.message == (
        "5 failures that count, backoffLimit is 4; last evaluator ended with exit code 1: no display"
    )


def test_backoff_limit_counts_what_the_job_can_t_do_without() -> None:
    controller = running("spec.successPolicy={rawFrames: 1000000}")
    for life in range(3):
        end_again(controller, "actor-0", life)
        end_again(controller, "evaluator", life)
    controller.expect(counted=0, ignored=6)
    for life in range(2):
        end_again(controller, "replay-0", life)
        assert end_again(controller, "learner", life, exit_code=9).outcome is None
    outcome = end_again(controller, "learner", 2, exit_code=9).outcome
    assert (outcome.reason, outcome.message) == (
        "BackoffLimitExceeded",
        "5 failures that count, backoffLimit is 4; last learner ended with exit code 9: boom",
    )
    assert len(controller.status.failures) == 5


def test_the_count_is_forgiven_after_healthy_time_alone(soon_forgiven: float) -> None:
    controller = running("spec.progressDeadlineSeconds=100000")
    end_again(controller, "learner", 1)
    for seconds, seen, counted in (
        (1000.0, tuple(replace(m, phase=Phase.STARTING) if m.name == "learner" else m for m in members()), 1),
        (1.0, members(), 1),
        (soon_forgiven - 1.0, members(), 1),
        (2.0, members(), 0),
    ):
        controller.after(seconds, {"members": seen}, counted=counted)


@pytest.mark.parametrize(
    ("name", "code", "reason", "words"),
    [
        ("actor-0", 78, "FailurePolicyRule", "actor-0 refused the job: no ROM"),
        ("learner", 78, "FailurePolicyRule", "learner refused the job: no ROM"),
        ("learner", 70, "NonFiniteLoss", "no ROM"),
    ],
)
def test_exit_codes_that_no_restart_mends(name: str, code: int, reason: str, words: str) -> None:
    outcome = running().look(members=exited(name, members(), exit_code=code, last_words="no ROM")).outcome
    assert (outcome.reason, outcome.message) == (reason, words)


def test_exit_code_70_is_the_learners_alone() -> None:
    assert running().look(members=exited("actor-0", members(), exit_code=70)).outcome is None


RULES = "spec.failurePolicy.rules="


@pytest.mark.parametrize("name", ["learner", "actor-0"])
@pytest.mark.parametrize(
    ("rules", "fields"),
    [
        ("[{name: mine, onExitCodes: {values: [4]}, action: RestartRoleAndIgnoreBackoff}]", {"exit_code": 4}),
        ("[{name: mine, onExitCodes: {values: [4]}, action: Ignore}]", {"exit_code": 4}),
        ("[]", {"exit_code": 143, "disrupted": "preempted"}),
    ],
)
def test_what_is_not_counted_waits_before_its_next_start_all_the_same(
    name: str, rules: str, fields: dict[str, Any]
) -> None:
    controller = running(RULES + rules)
    for life, delay in enumerate(RESTART_DELAY_SECONDS[1:], start=1):
        end_again(controller, name, life, **fields)
        controller.expect(start=(), requeue_seconds=delay)
        assert name in controller.look(delay).start
    controller.expect(counted=0)
    assert controller.reason("ActorsReady")[1] != "CrashLooping", "no crash loop is seen in it"


@pytest.mark.parametrize("name", ["learner", "actor-0"])
def test_an_ended_member_that_is_taken_from_sight_waits_too(name: str, controller: Controller) -> None:
    end_again(controller, name, 1)
    end_again(controller, name, 2)
    # No other name takes its place either.
    controller.after(0.25, {"members": gone(name)}, start=(), requeue_seconds=0.75)
    assert controller.look(0.75).start == (name,)


def test_a_clock_that_was_set_back_delays_no_start(controller: Controller) -> None:
    end_again(controller, "actor-0", 1)
    controller.jump(-3600.0)
    assert controller.look(1.0).start == ("actor-0",)


FAILED, GOES_ON = "FailurePolicyRule", ""
DRAINED = {"pod_conditions": (("DisruptionTarget", "True"),), "disrupted": "node drained"}


@pytest.mark.parametrize(
    ("rule", "fields", "end", "counted", "listed"),
    [
        ("{roles: [Learner], onExitCodes: {values: [3]}, action: FailJob}", {"exit_code": 3}, FAILED, True, 1),
        ("{roles: [Actor], onExitCodes: {values: [3]}, action: FailJob}", {"exit_code": 3}, GOES_ON, True, 1),
        ("{onExitCodes: {values: [137]}, action: RestartRole}", {"exit_code": -9}, GOES_ON, True, 1),
        (
            "{onExitCodes: {operator: NotIn, values: [3]}, action: RestartRoleAndIgnoreBackoff}",
            {"exit_code": 4},
            GOES_ON,
            False,
            1,
        ),
        ("{onExitCodes: {values: [4]}, action: Ignore}", {"exit_code": 4}, GOES_ON, False, 0),
        ("{onPodConditions: [{type: DisruptionTarget}], action: FailJob}", DRAINED, FAILED, True, 1),
        ("{onExitCodes: {values: [78]}, action: RestartRole}", {"exit_code": 78}, GOES_ON, True, 1),
        ("{onExitCodes: {values: [0]}, action: FailJob}", {"exit_code": 0}, FAILED, True, 1),
        (
            "{onExitCodes: {operator: NotIn, values: [3]}, action: FailJob}",
            {"exit_code": 143, "disrupted": "Deleted"},
            GOES_ON,
            False,
            1,
        ),
        (
            "{onExitCodes: {values: [3]}, action: Ignore}, {name: b, onExitCodes: {values: [3]}, action: FailJob}",
            {"exit_code": 3},
            GOES_ON,
            False,
            0,
        ),
    ],
)
def test_the_first_rule_of_the_failure_policy_that_matches_decides(
    rule: str, fields: dict[str, Any], end: str, counted: bool, listed: int
) -> None:
    controller = running(RULES + "[" + rule.replace("{", "{name: mine, ", 1) + "]")
    decision = controller.after(
        0.0,
        {"members": exited("learner", members(), **fields)},
        end=end,
        counted=int(counted),
        ignored=int(not counted),
    )
    assert len(controller.status.failures) == listed
    if end:
        assert "rule mine: learner" in decision.outcome.message
    else:
        assert decision.start == ("learner",), "whatever the rule, the member comes back"


def test_disruptions_never_count(controller: Controller) -> None:
    for life in range(20):
        worked = controller.now + 30.0
        end_again(controller, "learner", life, disrupted="spot notice", exit_code=143, ready_seconds=worked)
        controller.expect(end="", start=("learner",))  # without a delay for one that had worked
    controller.expect(counted=0, ignored=20)
    last = controller.status.failures[-1]
    assert (last.reason, last.message) == ("Disrupted", "spot notice: boom")


def test_a_pod_that_is_refused_again_and_again_waits_longer_and_longer_and_ends_no_job() -> None:
    controller = running("spec.backoffLimit=0", "spec.progressDeadlineSeconds=100000")
    refused = {"disrupted": "OutOfcpu", "exit_code": None, "last_words": "Node didn't have enough resource: cpu"}
    for life, delay in enumerate((*RESTART_DELAY_SECONDS[1:], 30.0, 30.0), start=1):
        notes = [note.text for note in end_again(controller, "learner", life, **refused).notes]
        controller.expect(end="", start=(), requeue_seconds=delay)
        assert "learner ended (RestartRoleAndIgnoreBackoff): OutOfcpu: Node didn't have enough resource: cpu" in notes
    controller.expect(counted=0, LearnerReady=("False", "Restarting"))
    assert "learner (OutOfcpu: Node didn't have enough resource: cpu)" in controller.said("LearnerReady")[2]


def test_half_of_the_actors_may_crash_loop_but_not_more(controller: Controller) -> None:
    for life in range(QUICK_ENDS_OF_A_CRASH_LOOP):
        assert end_again(controller, "actor-0", life).outcome is None
    # One is needed and one plays, but two are wanted.
    controller.expect(ActorsReady=("False", "CrashLooping"), state="Degraded")
    one = exited("actor-0", members(), incarnation=f"actor-0-{QUICK_ENDS_OF_A_CRASH_LOOP - 1}", ready_seconds=None)
    for life in range(QUICK_ENDS_OF_A_CRASH_LOOP - 1):
        end = exited("actor-1", one, incarnation=f"b{life}", ready_seconds=None, last_words="line 1\nline 2")
        assert controller.look(40.0, members=end).outcome is None
    controller.expect(ActorsReady=("False", "CrashLooping"))
    last = exited("actor-1", one, incarnation="last", ready_seconds=None, last_words="ROM is missing", exit_code=3)
    outcome = controller.look(40.0, members=last).outcome
    assert outcome.message.startswith("2 of 2 actors keep ending before they work; ")
    controller.expect(end="ActorsCrashLooping")


def test_a_crash_that_the_operator_caused_is_forgotten_with_its_member(controller: Controller) -> None:
    end_again(controller, "actor-0", 1)
    controller.look(1.0, members=gone("actor-0"))
    assert [each.name for each in controller.status.controller.members] == ["actor-0"]
    controller.look(700.0)
    assert controller.status.controller.members == []


def test_reasons_why_a_role_is_not_ready(controller: Controller) -> None:
    coming = Controller(make_job(), members=(member("replay-0"), member("learner", Phase.STARTING)))
    coming.after(0.0, LearnerReady=("False", "PodsPending"), ReplayReady=("True", "PodsReady"))
    controller.after(
        0.0, {"members": exited("learner", members())}, LearnerReady=("False", "Restarting"), state="Starting"
    )


def test_inference_servers_are_part_of_the_core() -> None:
    seen = (*members(), member("inference-0"))
    controller = running(*SERVERS, "spec.backoffLimit=3", members=seen)
    controller.expect(InferenceReady=("True", "PodsReady"))
    assert (controller.status.inference.ready, controller.status.inference.desired) == (1, 1)
    for life, delay in ((1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0)):
        ended = {"since_seconds": controller.now + 20, "ready_seconds": None, "last_words": "no memory on the device"}
        decision = controller.look(20.0, members=exited("inference-0", seen, incarnation=f"i{life}", **ended))
        assert "inference-0" not in decision.start
        if life < 4:
            assert controller.status.state == "Degraded"
            assert "inference-0" in controller.look(delay).start
        if life == 3:
            assert controller.reason("InferenceReady") == ("False", "CrashLooping")
    assert (decision.outcome.reason, decision.outcome.message) == (
        "BackoffLimitExceeded",
        "4 failures that count, backoffLimit is 3; last inference-0 ended with exit code 1: no memory on the device",
    )


def test_actors_start_beside_the_inference_servers_that_they_wait_for() -> None:
    controller = Controller(make_job(*SERVERS), members=(member("replay-0"), member("learner")))
    assert controller.look().start == ("inference-0", "actor-0")


def test_nothing_is_said_of_a_replay_service_that_the_job_does_not_have(soon_forgiven: float) -> None:
    job = load_manifest(CARTPOLE, [STORAGE])
    seen = tuple(m for m in members(1) if m.name != "replay-0")
    controller = Controller(job, members=seen)
    controller.trained()
    controller.after(0.0, {"members": exited("learner", seen)}, counted=1)
    controller.look(1.0, members=seen)
    controller.look(soon_forgiven + 1.0)
    assert controller.status.restarts.counted == 0, "the learner's health alone is enough"
    controller.look(1.0, job=job.model_copy(update={"spec": job.spec.model_copy(update={"suspend": True})}))
    controller.after(1.0, {"members": ()}, Suspended=("True", "UserRequested"), ReplayReady=("", ""))

"""Every condition and reason can be reached, means what the table says, and the table is what the docs show."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from rljob.api import parse_job
from rljob.api.conditions import CATALOGUE, MEANING_WHEN_TRUE, ConditionType, Reason
from rljob.api.presets.merging import NO_ALGORITHM
from rljob.api.status_model import MAX_MESSAGE
from rljob.api.timestamps import rfc3339
from rljob_operator.core.conditions.update import merged, true
from rljob_operator.core.member import Phase
from rljob_operator.core.observed import CheckpointFacts, CheckpointState

from tests.support.controller import (
    START,
    Controller,
    exited,
    gone,
    make_job,
    members,
    running,
    sample,
    verified,
)
from tests.support.jobs import job_of
from tests.support.paths import ROOT
from tests.unit.api.written import in_force
from tests.unit.operator.scenes import (
    SCENES,
    Reached,
    diminishing,
    more_scaling_scenes,
)

DOCS = ROOT / "docs" / "lifecycle.md"


def test_every_condition_and_reason_is_reached_and_nothing_else_is_said() -> None:
    reached: Reached = more_scaling_scenes() | diminishing()
    for scene in SCENES:
        reached |= scene().reached
    listed = {(e.type.value, e.status, e.reason.value) for e in CATALOGUE}
    assert reached - listed == set(), "said, but not in the table"
    of_a_failed_turn = {("Ready", "False", "TurnFailed")}  # said in the place of the core, which was not asked
    assert listed - reached == of_a_failed_turn, "in the table, but never said"


def test_nothing_is_called_ready_that_kubernetes_does_not_call_ready() -> None:
    """It counts as up, which decides what starts, and after a minute the job is no more than Degraded."""
    controller, words = running(), "containers with unready status: [proxy]"
    began = controller.now
    seen = tuple(
        replace(m, unready_seconds=began, waiting_message=words) if m.name in ("learner", "actor-1") else m
        for m in members()
    )
    for updates, state in ((1100, "Running"), (1200, "Degraded")):
        controller.look(31.0, members=seen, learner=sample(controller.now + 31.0, updates))
        assert controller.reason("Ready") == ("True", state)
    said = {each.type: each.message for each in controller.status.conditions}
    assert said["LearnerReady"] == f"1 of 1 up, 0 ready; up only: learner ({words})"
    assert said["ActorsReady"] == f"2 of 2 up, 1 ready; up only: actor-1 ({words})"
    assert said["Ready"].startswith(f"learner is not ready since {rfc3339(began)} ({words}), actor-1 is not ready")


def test_figures_that_arrive_or_do_not_and_a_tracker_that_is_taken_away() -> None:
    controller = running("spec.tracking.mlflow.uri=http://127.0.0.1:9")
    assert controller.reason("Tracked") == ("", ""), "nothing is known yet"
    controller.look(1.0, untracked={"MLflow": "it is away"})
    said = controller.status.condition("Tracked")
    assert (said.status, said.reason, said.message) == ("False", "NotSent", "MLflow: it is away")
    controller.look(1.0, untracked={})
    assert controller.reason("Tracked") == ("True", "Sending")
    controller.job = make_job()
    controller.look(1.0, untracked=None)
    assert controller.reason("Tracked") == ("", "")


def test_the_table_is_whole() -> None:
    assert {e.type for e in CATALOGUE} == set(ConditionType) == set(MEANING_WHEN_TRUE)
    assert {e.reason for e in CATALOGUE} == set(Reason)
    keys = [(e.type, e.status, e.reason) for e in CATALOGUE]
    assert len(set(keys)) == len(keys)


def test_the_docs_show_the_table() -> None:
    text = DOCS.read_text()
    rows = set(re.findall(r"^\| `(\w+)` \| (True|False|Unknown) \| `(\w+)` \| (.*) \|$", text, re.MULTILINE))
    assert rows == {(e.type.value, e.status, e.reason.value, e.meaning) for e in CATALOGUE}
    for type, meaning in MEANING_WHEN_TRUE.items():
        assert f"| `{type}` | {meaning} |" in text


def test_a_transition_time_changes_with_the_status_alone() -> None:
    controller = running()
    first = controller.status.condition("Ready")
    controller.look(60.0, members=gone("actor-0", "actor-1"), learner=sample(START + 61, 1001))
    degraded = controller.status.condition("Ready")
    assert (first.reason, degraded.reason) == ("Running", "Degraded")
    assert first.last_transition_time == degraded.last_transition_time
    controller.look(60.0, members=members()[2:], learner=sample(START + 121, 1002))
    down = controller.status.condition("Ready")
    assert (down.status, down.last_transition_time) == ("False", controller.now)


def test_what_comes_up_is_named_and_after_a_minute_what_says_why_it_does_not() -> None:
    coming = members(learner=Phase.STARTING, replay_0=Phase.STARTING)
    placed = tuple(replace(m, since_seconds=START, placed=True, pod_name=f"pong-{m.name}-x1") for m in coming)
    controller = Controller(make_job(), members=placed)
    controller.look(1.0)
    ready = controller.status.condition("Ready")
    assert (ready.reason, ready.message) == ("Starting", "coming up: replay, learner")
    controller.look(60.0)
    ready = controller.status.condition("Ready")
    assert (
        f"learner does not come up since {rfc3339(START)}: kubectl describe pod pong-learner-x1 says why"
        in ready.message
    )
    controller.look(1.0, members=members())
    ready = controller.status.condition("Ready")
    assert ready.message == "the learner has made no update yet"


def test_a_job_that_can_write_no_checkpoint_does_not_run_well() -> None:
    controller = running()
    broken = CheckpointFacts(CheckpointState.STORAGE_ERROR, message="no space left")
    controller.look(5.0, checkpoint=broken, learner=sample(START + 6, 1001))
    ready = controller.status.condition("Ready")
    assert (ready.status, ready.reason) == ("True", "Degraded")
    assert ready.message == "no checkpoint could be written (see condition CheckpointValid)"
    controller.look(5.0, checkpoint=verified(controller.now, 1001), learner=sample(START + 11, 1002))
    assert controller.status.state == "Running"


def test_messages_are_cut_to_what_a_status_may_hold() -> None:
    words = "x" * 10_000
    controller = running()
    controller.look(members=exited("learner", members(), exit_code=78, last_words=words))
    assert len(controller.status.condition("FailureTarget").message) == MAX_MESSAGE
    assert len(controller.status.failures[0].message) == 256


def test_observed_generation() -> None:
    controller = running(generation=3)
    assert controller.status.observed_generation == 3
    controller.look(1.0, generation=4)
    assert {c.observed_generation for c in controller.status.conditions} == {4}


@pytest.mark.parametrize("reason", ["TooManyReplicas", "TooFewReplicas"])
def test_external_scaling_is_kept_within_its_bounds(reason: str) -> None:
    job = make_job("spec.autoscaling={mode: External, minReplicas: 2, maxReplicas: 4}", "spec.actors.replicas=3")
    wrong = {"TooManyReplicas": 9, "TooFewReplicas": 1}[reason]
    actors = job.spec.actors.model_copy(update={"replicas": wrong})
    controller = Controller(job.model_copy(update={"spec": job.spec.model_copy(update={"actors": actors})}))
    controller.look()
    assert controller.status.autoscaling.desired_replicas == {9: 4, 1: 2}[wrong]
    assert controller.reason("ScalingLimited") == ("True", reason)


def test_conditions_share_the_names_of_their_fields_and_a_copy_has_its_own() -> None:
    updates = (true(ConditionType.ACCEPTED, Reason.VALID), true(ConditionType.ADMITTED, Reason.NOT_MANAGED))
    first, second = merged([], updates, 1, START)
    assert first.model_fields_set is second.model_fields_set
    assert first.model_fields_set == set(type(first).model_fields)
    assert first.model_copy(update={"message": "else"}).model_fields_set is not first.model_fields_set


def test_what_of_a_preset_does_not_count_is_said_where_the_job_is_accepted() -> None:
    """The same sentence as on one machine, as long as the job is there: also of the spec in force, all values written."""
    spec = {"preset": "PongVTrace", "environment": {"id": "ALE/Breakout-v5"}, "activeDeadlineSeconds": 60}
    for job in (job_of(spec), parse_job(in_force(job_of(spec)))):
        controller = Controller(job)
        controller.look(1.0, members=())
        accepted = controller.status.condition(ConditionType.ACCEPTED)
        assert accepted.message.startswith(
            "preset PongVTrace is of ALE/Pong-v5, and for ALE/Breakout-v5 this of it does not"
        )
        assert "environment.actions [0, 2, 3]" in accepted.message


def test_that_ppo_was_chosen_is_said_where_the_job_is_accepted() -> None:
    controller = Controller(job_of({"environment": {"id": "Pendulum-v1"}}))
    controller.look(1.0, members=())
    accepted = controller.status.condition(ConditionType.ACCEPTED)
    assert (accepted.status, accepted.message) == ("True", NO_ALGORITHM)


def test_a_preset_of_another_release_is_no_trouble() -> None:
    job = job_of({"preset": "PongVTrace"})
    of_another = job.model_copy(update={"spec": job.spec.model_copy(update={"preset": "OfALaterRelease"})})
    controller = Controller(of_another)
    controller.look(1.0, members=())
    accepted = controller.status.condition(ConditionType.ACCEPTED)
    assert (accepted.status, accepted.message) == ("True", "")

"""Every condition and reason can be reached and means what the docs' table says; what has happened is told once in events."""

import re
from dataclasses import replace
from typing import Any

import pytest
from rljob.api import RLJob, parse_job
from rljob.api.conditions import CATALOGUE, MEANING_WHEN_TRUE, ConditionType, Reason
from rljob.api.effective import NO_ALGORITHM
from rljob.api.status_model import MAX_MESSAGE, rfc3339
from rljob_operator.core.conditions.update import merged, true
from rljob_operator.core.member import Phase
from rljob_operator.core.observed import Admission, CheckpointFacts, CheckpointState

from tests.support.controller import START, Controller, exited, gone, make_job, members, running, sample, verified
from tests.support.jobs import job_of
from tests.support.paths import ROOT
from tests.unit.api.bad_manifests import in_force
from tests.unit.operator.scenes import SCENES, Reached, diminishing, more_scaling_scenes

DOCS = ROOT / "docs" / "api-reference.md"


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
        controller.after(
            31.0, {"members": seen, "learner": sample(controller.now + 31.0, updates)}, Ready=("True", state)
        )
    said = {each.type: each.message for each in controller.status.conditions}
    assert said["LearnerReady"] == f"1 of 1 up, 0 ready; up only: learner ({words})"
    assert said["ActorsReady"] == f"2 of 2 up, 1 ready; up only: actor-1 ({words})"
    assert said["Ready"].startswith(
        f"learner has not been ready since {rfc3339(began)} ({words}), actor-1 has not been ready"
    )


def test_figures_that_arrive_or_do_not_and_a_tracker_that_is_taken_away() -> None:
    controller = running("spec.tracking.mlflow.uri=http://127.0.0.1:9")
    controller.expect(Tracked=("", ""))  # nothing is known yet
    controller.look(1.0, untracked={"MLflow": "it is away"})
    assert controller.said("Tracked") == ("False", "NotSent", "MLflow: it is away")
    controller.after(1.0, {"untracked": {}}, Tracked=("True", "Sending"))
    controller.after(1.0, {"job": make_job(), "untracked": None}, Tracked=("", ""))


def test_the_table_is_whole() -> None:
    assert {e.type for e in CATALOGUE} == set(ConditionType) == set(MEANING_WHEN_TRUE)
    assert {e.reason for e in CATALOGUE} == set(Reason)
    keys = [(e.type, e.status, e.reason) for e in CATALOGUE]
    assert len(set(keys)) == len(keys)


def test_the_docs_show_the_table() -> None:
    text = DOCS.read_text().partition("\n## Conditions\n")[2].partition("\n## ")[0]
    shown = set()
    for types, reasons in re.findall(r"^(`\w+` \(.*):\n\n((?:- .*\n)+)", text, re.MULTILINE):
        rows = re.findall(r"^- (True|False|Unknown) `(\w+)`: (.*)$", reasons, re.MULTILINE)
        shown |= {(type, *row) for type in re.findall(r"`(\w+)` \(", types) for row in rows}
    assert shown == {(e.type.value, e.status, e.reason.value, e.meaning) for e in CATALOGUE}
    assert all(f"`{type}` ({meaning})" in text for type, meaning in MEANING_WHEN_TRUE.items())


def test_a_transition_time_changes_with_the_status_alone(controller: Controller) -> None:
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
    assert controller.said("Ready")[1:] == ("Starting", "coming up: replay, learner")
    controller.look(60.0)
    stands = f"learner has not come up since {rfc3339(START)}: kubectl describe pod pong-learner-x1 says why"
    assert stands in controller.said("Ready")[2]
    controller.look(1.0, members=members())
    assert controller.said("Ready")[2] == "the learner has made no update yet"


def test_an_actor_that_the_start_needs_and_that_lacks_something_is_named_with_that() -> None:
    words = 'CreateContainerConfigError: secret "mine" not found'
    coming = members(actor_0=Phase.STARTING, actor_1=Phase.STARTING)
    controller = Controller(
        make_job(),
        members=tuple(
            replace(m, placed=True, waiting_message=words if m.name == "actor-0" else "", since_seconds=START)
            for m in coming
        ),
    )
    controller.look(1.0)
    assert controller.said("Ready")[1:] == ("Starting", f"actor-0 ({words})")


def test_a_job_that_can_write_no_checkpoint_does_not_run_well(controller: Controller) -> None:
    broken = CheckpointFacts(CheckpointState.STORAGE_ERROR, message="no space left")
    controller.look(5.0, checkpoint=broken, learner=sample(START + 6, 1001))
    words = "no checkpoint could be written (see condition CheckpointValid)"
    assert controller.said("Ready") == ("True", "Degraded", words)
    controller.after(
        5.0, {"checkpoint": verified(controller.now, 1001), "learner": sample(START + 11, 1002)}, state="Running"
    )


def test_messages_are_cut_to_what_a_status_may_hold(controller: Controller) -> None:
    controller.look(members=exited("learner", members(), exit_code=78, last_words="x" * 10_000))
    assert (len(controller.said("FailureTarget")[2]), len(controller.status.failures[0].message)) == (MAX_MESSAGE, 256)


def test_observed_generation() -> None:
    controller = running(generation=3)
    assert controller.status.observed_generation == 3
    controller.look(1.0, generation=4)
    assert {c.observed_generation for c in controller.status.conditions} == {4}


def test_conditions_share_the_names_of_their_fields_and_a_copy_has_its_own() -> None:
    updates = (true(ConditionType.ACCEPTED, Reason.VALID), true(ConditionType.ADMITTED, Reason.NOT_MANAGED))
    first, second = merged([], updates, 1, START)
    assert first.model_fields_set is second.model_fields_set
    assert first.model_fields_set == set(type(first).model_fields)
    assert first.model_copy(update={"message": "else"}).model_fields_set is not first.model_fields_set


def said_of_accepting(job: RLJob) -> tuple[str, str, str]:
    controller = Controller(job)
    controller.look(1.0, members=())
    return controller.said(ConditionType.ACCEPTED)


def test_what_of_a_preset_does_not_count_is_said_where_the_job_is_accepted() -> None:
    """The same sentence as on one machine, as long as the job is there: also of the spec in force, all values written."""
    spec = {"preset": "PongVTrace", "environment": {"id": "ALE/Breakout-v5"}, "activeDeadlineSeconds": 60}
    for job in (job_of(spec), parse_job(in_force(job_of(spec)))):
        message = said_of_accepting(job)[2]
        assert message.startswith("preset PongVTrace is of ALE/Pong-v5, and for ALE/Breakout-v5 this of it does not")
        assert "environment.actions [0, 2, 3]" in message


def test_that_ppo_was_chosen_is_said_where_the_job_is_accepted() -> None:
    status, _, message = said_of_accepting(job_of({"environment": {"id": "Pendulum-v1"}}))
    assert (status, message) == ("True", NO_ALGORITHM)


def test_a_preset_of_another_release_is_no_trouble() -> None:
    job = job_of({"preset": "PongVTrace"})
    of_another = job.model_copy(update={"spec": job.spec.model_copy(update={"preset": "OfALaterRelease"})})
    status, _, message = said_of_accepting(of_another)
    assert (status, message) == ("True", "")


FULL = Admission(False, Reason.QUOTA_EXCEEDED, "no room")


def test_a_job_that_begins_well_is_no_news() -> None:
    assert not Controller(make_job()).look(1.0, members=()).notes


def test_what_is_wrong_from_the_first_moment_is_told() -> None:
    notes = Controller(make_job()).look(1.0, members=(), admission=FULL).notes
    assert any(note.text.startswith("Admitted=False (QuotaExceeded): no room") and note.warning for note in notes)


def test_a_condition_that_changes_is_told_back_and_forth(controller: Controller) -> None:
    down = controller.look(1.0, members=members(learner=Phase.STARTING)).notes
    assert any(note.text.startswith("LearnerReady=False (PodsPending)") and not note.warning for note in down)
    assert any(note.text.startswith("LearnerReady=True") for note in controller.look(1.0, members=members()).notes)
    assert controller.look(1.0).notes == ()


@pytest.mark.parametrize(
    ("end", "warns"), [({"exit_code": 1}, True), ({"exit_code": 143, "disrupted": "EvictionByEvictionAPI"}, False)]
)
def test_an_end_that_counts_is_a_warning_and_one_that_its_surroundings_brought_is_none(
    end: dict[str, Any], warns: bool
) -> None:
    notes = running().look(1.0, members=exited("actor-0", members(), **end)).notes
    assert [note.warning for note in notes if "ended with exit code" in note.text] == [warns]

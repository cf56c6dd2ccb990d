"""Events: what has happened is told once each, and nothing of what every job is like that has just begun."""

from __future__ import annotations

from rljob.api.conditions import Reason
from rljob_operator.core.decision import Note
from rljob_operator.core.member import Phase
from rljob_operator.core.observed import Admission

from tests.support.controller import Controller, exited, make_job, members, running

FULL = Admission(False, Reason.QUOTA_EXCEEDED, "no room")


def test_a_job_that_begins_is_told_of_with_one_event() -> None:
    assert Controller(make_job()).look(1.0, members=()).notes == (Note("Accepted=True (Valid)"),)


def test_what_is_wrong_from_the_first_moment_is_told() -> None:
    notes = Controller(make_job()).look(1.0, members=(), admission=FULL).notes
    assert any(note.text.startswith("Admitted=False (QuotaExceeded): no room") and note.warning for note in notes)


def test_a_condition_that_changes_is_told_back_and_forth() -> None:
    controller = running()
    down = controller.look(1.0, members=members(learner=Phase.STARTING)).notes
    assert any(note.text.startswith("LearnerReady=False (PodsPending)") and not note.warning for note in down)
    assert any(note.text.startswith("LearnerReady=True") for note in controller.look(1.0, members=members()).notes)
    assert controller.look(1.0).notes == ()


def test_an_end_that_counts_is_a_warning_and_one_that_its_surroundings_brought_is_none() -> None:
    for more, warns in (({"exit_code": 1}, True), ({"exit_code": 143, "disrupted": "EvictionByEvictionAPI"}, False)):
        notes = running().look(1.0, members=exited("actor-0", members(), **more)).notes
        (ended,) = [note for note in notes if "ended with exit code" in note.text]
        assert ended.warning == warns

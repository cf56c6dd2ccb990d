"""Events: what has happened is told once each, and nothing of what every job is like that has just begun."""

from __future__ import annotations

from rljob.api.conditions import Reason
from rljob_operator.core.member import Phase
from rljob_operator.core.observed import Admission

from tests.support.controller import Controller, make_job, members, running

FULL = Admission(False, Reason.QUOTA_EXCEEDED, "no room")


def test_a_job_that_begins_is_told_of_with_one_event() -> None:
    controller = Controller(make_job())
    assert controller.look(1.0, members=()).notes == ("Accepted=True (Valid)",)


def test_what_is_wrong_from_the_first_moment_is_told() -> None:
    controller = Controller(make_job())
    notes = controller.look(1.0, members=(), admission=FULL).notes
    assert any(note.startswith("Admitted=False (QuotaExceeded): no room") for note in notes)


def test_a_condition_that_changes_is_told_back_and_forth() -> None:
    controller = running()
    down = controller.look(1.0, members=members(learner=Phase.STARTING)).notes
    assert any(note.startswith("LearnerReady=False (PodsPending)") for note in down)
    assert any(note.startswith("LearnerReady=True") for note in controller.look(1.0, members=members()).notes)
    assert controller.look(1.0).notes == ()

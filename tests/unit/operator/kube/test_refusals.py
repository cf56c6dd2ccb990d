"""What is remembered of a refusal, and when it is tried again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rljob.api.conditions import Reason
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.kube.apiserver.errors import Forbidden, Invalid, QuotaExceeded, Unavailable
from rljob_operator.kube.job.keys import KeysLost, NameConflict
from rljob_operator.kube.job.refusals import FIRST_PAUSE_SECONDS, Refusals


def is_held(refusals: Refusals, generation: int, now: float) -> bool:
    (seen,) = refusals.told([], generation, now)
    return seen.held


def test_the_pause_grows_and_ends_at_once_where_the_job_changes() -> None:
    refusals, now, tries = Refusals(generation=1), 0.0, []
    while len(tries) < 6:
        assert not refusals.of or not is_held(refusals, 1, now)
        refusals.note({"learner": QuotaExceeded("full")}, now, now)
        tries.append(now)
        assert is_held(refusals, 1, now)
        now += refusals.due_in(now)
    assert tries == [0.0, 5.0, 15.0, 35.0, 75.0, 135.0]
    assert is_held(refusals, 1, 136.0)
    refusals.note({}, 136.0, 136.0)
    assert is_held(refusals, 1, 136.0), "a turn that does not try it leaves it as it is"
    assert not is_held(refusals, 2, 136.0)
    refusals.note({}, 136.0, 136.0)
    assert (refusals.of, refusals.due_in(136.0)) == ({}, float("inf")), "it was made, or is not wanted any more"


def test_what_nobody_could_find_out_is_tried_every_few_seconds() -> None:
    refusals, now = Refusals(generation=1), 0.0
    for _ in range(4):
        refusals.note({"learner": Unavailable("failed calling webhook", code=500)}, now, now)
        assert refusals.due_in(now) == FIRST_PAUSE_SECONDS
        now += FIRST_PAUSE_SECONDS
        refusals.told([], 1, now)


def test_a_member_that_cannot_be_made_stands_among_those_that_are_there() -> None:
    refusals, ended = Refusals(generation=1), Member("actor-2", Role.ACTOR, Phase.EXITED)
    refusals.note({"actor-1": QuotaExceeded("full"), "actor-2": QuotaExceeded("full")}, 0.0, 7.0)
    why: dict[str, Any] = {"waiting": Reason.QUOTA_EXCEEDED, "waiting_message": "full", "held": True, "placed": False}
    absent = Member("actor-1", Role.ACTOR, Phase.ABSENT, 7.0, **why)
    assert refusals.told([ended], 1, 0.0) == (replace(ended, **why), absent)


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (NameConflict("taken"), Reason.NAME_CONFLICT),
        (KeysLost("gone"), Reason.KEYS_LOST),
        (Forbidden("no"), Reason.POD_TEMPLATE_REJECTED),
        (Invalid("no"), Reason.POD_TEMPLATE_REJECTED),
        (Unavailable("failed calling webhook", code=500), Reason.NOT_MADE),
        (ZeroDivisionError("by zero"), Reason.NOT_MADE),
    ],
)
def test_the_words_are_those_of_the_api_server(problem: Exception, reason: Reason) -> None:
    refusals = Refusals()
    refusals.note({"learner": problem}, 0.0, 0.0)
    (seen,) = refusals.told([], 0, 0.0)
    assert (seen.waiting, str(problem) in seen.waiting_message) == (reason, True)
    hint = "; to change a role, set suspend: true with it, and resume"
    assert seen.waiting_message.endswith(hint) == (reason is Reason.POD_TEMPLATE_REJECTED)

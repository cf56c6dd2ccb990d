"""What is remembered of a refusal, and when it is tried again."""

from __future__ import annotations

import pytest
from rljob.api.conditions import Reason
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.kube.apiserver.errors import Forbidden, Invalid, QuotaExceeded, Unavailable
from rljob_operator.kube.job.keys import KeysLost
from rljob_operator.kube.job.owned import NameConflict
from rljob_operator.kube.job.refusals import Problem, Refusals
from rljob_operator.kube.job.stored import read

from .test_stored import stored

JOB = read(stored())


def test_the_pause_grows_and_ends_at_once_where_the_job_changes() -> None:
    refusals, now, tries = Refusals(), 0.0, []
    while len(tries) < 6:
        if refusals.due(["learner"], 1, now):
            refusals.note(JOB, ["learner"], {"learner": QuotaExceeded("full")}, now, now)
            tries.append(now)
        now += refusals.due_in(now)
    assert tries == [0.0, 5.0, 15.0, 35.0, 75.0, 135.0]
    assert refusals.due(["learner", "actor-0"], 1, 136.0) == ("actor-0",), "nobody else waits for it"
    assert refusals.due(["learner"], 2, 136.0) == ("learner",)
    refusals.note(JOB, ["learner"], {}, 136.0, 136.0)
    assert (refusals.of, refusals.due_in(136.0)) == ({}, float("inf"))


def test_a_member_that_nobody_wants_any_more_is_not_said_to_be_refused() -> None:
    refusals = Refusals()
    refusals.note(JOB, ["actor-1"], {"actor-1": QuotaExceeded("full")}, 0.0, 7.0)
    ended = Member("actor-2", Role.ACTOR, Phase.EXITED)
    assert refusals.told([ended]) == (
        ended,
        Member(
            "actor-1",
            Role.ACTOR,
            Phase.ABSENT,
            7.0,
            waiting=Reason.QUOTA_EXCEEDED,
            waiting_message="full",
            placed=False,
        ),
    )
    refusals.due([], 1, 1.0)
    assert refusals.told([ended]) == (ended,)


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (NameConflict("taken"), Reason.NAME_CONFLICT),
        (KeysLost("gone"), Reason.KEYS_LOST),
        (Forbidden("no"), Reason.POD_TEMPLATE_REJECTED),
        (Invalid("no"), Reason.POD_TEMPLATE_REJECTED),
        (Unavailable("failed calling webhook", code=500), None),
    ],
)
def test_the_words_are_those_of_the_api_server(problem: Problem, reason: Reason | None) -> None:
    refusals = Refusals()
    refusals.note(JOB, ["learner"], {"learner": problem}, 0.0, 0.0)
    (seen,) = refusals.told([])
    assert seen.waiting is reason
    assert seen.waiting_message.startswith(str(problem))
    hint = "; to change a role, set suspend: true with it, and resume"
    assert seen.waiting_message.endswith(hint) == (reason is Reason.POD_TEMPLATE_REJECTED)

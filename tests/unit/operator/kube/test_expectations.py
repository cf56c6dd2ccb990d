"""Requests that an operator remembers: refused ones and when to try them again, ones that it does not see done yet, and how long
writes take.
"""

from dataclasses import replace
from typing import Any

import pytest
from rljob.api.conditions import Reason
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.core.turn import StatusWrite
from rljob_operator.kube.apiserver.errors import Forbidden, Invalid, LacksRight, QuotaExceeded, Unavailable
from rljob_operator.kube.job.keys import KeysLost, NameConflict
from rljob_operator.kube.job.refusals import FIRST_PAUSE_SECONDS, Refusals
from rljob_operator.kube.job.status_writer import SEEN_SECONDS, SELDOM_SECONDS, WriteTimes
from rljob_operator.kube.render.names import PodProblem
from rljob_operator.kube.watch.expectations import LAPSE_SECONDS, Expectations

from tests.support.clock import Clock

JOB, OTHER = "uid-of-job", "uid-of-other"
WAITING, ALL = LAPSE_SECONDS, None
LONG_AGO = 0.0
NOW = 1000.0


def pod(name: str, uid: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, **metadata}}


@pytest.fixture
def clock() -> Clock:
    return Clock(50.0)


@pytest.fixture
def asked(clock: Clock) -> Expectations:
    return Expectations(clock)


@pytest.mark.parametrize(
    ("asked_for", "events"),
    [
        (
            ("a", "b"),
            [
                (JOB, "ADDED", pod("a", "1"), WAITING),
                (OTHER, "ADDED", pod("b", "2"), WAITING),  # another job's pod
                (JOB, "MODIFIED", pod("b", "2"), ALL),
            ],
        ),
        (
            ("1", "2"),
            [
                (JOB, "MODIFIED", pod("a", "1"), WAITING),
                (JOB, "DELETED", pod("a", "1"), WAITING),
                (JOB, "MODIFIED", pod("b", "2", deletionTimestamp="2026-11-23T12:00:00Z"), ALL),
            ],
        ),
        (("a",), [(JOB, "DELETED", pod("a", "1"), ALL)]),
    ],
    ids=["pods by name", "deletions by uid", "a pod that came and went"],
)
def test_a_job_waits_until_all_that_was_asked_for_was_seen(
    asked: Expectations, asked_for: tuple[str, ...], events: list[tuple[str, str, dict[str, Any], float | None]]
) -> None:
    assert asked.waits_seconds(JOB) is ALL
    for what in asked_for:
        asked.expect(JOB, what)
    for job, kind, seen, waits in events:
        asked.observe(job, kind, seen)
        assert (asked.waits_seconds(JOB), asked.waits_seconds(OTHER)) == (waits, ALL)


def test_a_call_that_failed_is_not_waited_for(asked: Expectations) -> None:
    asked.expect(JOB, "a")
    asked.expect(JOB, "1")
    asked.take_back(JOB, "a")
    assert asked.waits_seconds(JOB) == WAITING
    for _ in range(2):
        asked.take_back(JOB, "1")
    assert asked.waits_seconds(JOB) is ALL


def test_what_never_comes_lapses(asked: Expectations, clock: Clock) -> None:
    asked.expect(JOB, "a")
    clock.now += 20.0
    asked.expect(JOB, "1")
    assert asked.waits_seconds(JOB) == LAPSE_SECONDS - 20.0
    clock.now += LAPSE_SECONDS - 20.0
    assert asked.waits_seconds(JOB) == 0.0
    asked.observe(JOB, "ADDED", pod("a", "2"))
    assert asked.waits_seconds(JOB) == 20.0, "the deletion was asked for later"
    asked.forget(JOB)
    assert asked.waits_seconds(JOB) is ALL


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
        (LacksRight('User "operator" cannot create resource "pods"'), Reason.NOT_MADE),
        (Invalid("no"), Reason.POD_TEMPLATE_REJECTED),
        (PodProblem("spec.actors.podTemplate.some: allowed: metadata and spec"), Reason.POD_TEMPLATE_REJECTED),
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


def slow(seconds: float, writes: int = 50) -> WriteTimes:
    """The times of an API server each of whose writes has taken so long for a while."""
    times = WriteTimes()
    for _ in range(writes):
        times.took(seconds)
    return times


@pytest.mark.parametrize(
    ("times", "write", "last", "waits"),
    [
        # What is seen after a quiet moment is told at once, and right after a write it waits for more of it.
        *((slow(seconds), StatusWrite.SOON, LONG_AGO, 0.0) for seconds in (0.0, 0.02, 0.1)),
        (slow(0.5, writes=1), StatusWrite.SOON, LONG_AGO, 0.0),
        (WriteTimes(), StatusWrite.SOON, NOW - 1.0, SEEN_SECONDS - 1.0),
        # Progress waits longer, and time alone the longest.
        *(
            (slow(seconds), StatusWrite.WHEN_DUE, NOW, most)
            for seconds, most in ((0.02, 30.0), (0.2, 60.0), (5.0, 90.0))
        ),
        *((slow(seconds), StatusWrite.SELDOM, NOW, SELDOM_SECONDS) for seconds in (0.02, 0.2, 5.0)),
        (slow(5.0), StatusWrite.BEFORE_ACTING, NOW, 0.0),
        (slow(5.0), StatusWrite.NONE, NOW, float("inf")),
    ],
)
def test_how_long_a_write_waits(times: WriteTimes, write: StatusWrite, last: float, waits: float) -> None:
    approximately = 0.1 if write is StatusWrite.WHEN_DUE else 0.01
    assert times.due(write, NOW, last) - NOW == pytest.approx(waits, abs=approximately)


def test_an_api_server_that_has_too_much_to_do_is_given_time_but_not_without_end() -> None:
    waits = [slow(seconds).due(StatusWrite.SOON, NOW, LONG_AGO) - NOW for seconds in (0.15, 0.2, 0.3, 5.0)]
    assert (waits, waits[1]) == (sorted(waits), pytest.approx(SEEN_SECONDS, abs=0.1))
    assert waits[-1] == pytest.approx(2 * SEEN_SECONDS)
    assert slow(5.0).due(StatusWrite.SOON, NOW, NOW) - NOW < 10.0, "a cause is told within ten seconds even then"

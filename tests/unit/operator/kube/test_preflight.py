"""When a job's pods are checked before they are made, and what becomes of a refusal."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from rljob.api.conditions import Reason
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.kube.apiserver.errors import (
    ApiError,
    Forbidden,
    Invalid,
    NamespaceTerminating,
    PodSecurityViolated,
    QuotaExceeded,
    Unavailable,
)
from rljob_operator.kube.job.keys import KeysLost
from rljob_operator.kube.job.owned import NameConflict
from rljob_operator.kube.job.preflight import AGAIN_SECONDS, Preflight, one_of_each
from rljob_operator.kube.job.stored import StoredJob, read

from .test_stored import stored


class Writer:
    """Refuses as ``problem`` says."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.problem, self.asked = problem, 0

    async def try_one_of_each(self, stored: StoredJob, members: list[str]) -> None:
        self.asked += 1
        if self.problem is not None:
            raise self.problem


def job(generation: int = 1, **spec: Any) -> StoredJob:
    return read(stored(metadata={"generation": generation}, **spec))


def check(preflight: Preflight, writer: Writer, now: float, stored: StoredJob | None = None) -> None:
    asyncio.run(preflight.check(stored or job(), writer, now))


def test_a_job_is_checked_once_for_each_of_its_generations() -> None:
    preflight, writer = Preflight(), Writer()
    for now, generation in ((0, 1), (1, 1), (1e6, 1), (1e6, 2), (2e6, 2)):
        check(preflight, writer, now, job(generation))
    assert writer.asked == 2
    assert (preflight.refusal, preflight.sooner(None, 2e6), preflight.sooner(5.0, 2e6)) == (None, None, 5.0)


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (PodSecurityViolated("no"), Reason.POD_SECURITY_FORBIDDEN),
        (NamespaceTerminating("no"), Reason.NAMESPACE_TERMINATING),
        (Invalid("no"), Reason.POD_TEMPLATE_REJECTED),
        (Forbidden("no"), Reason.POD_TEMPLATE_REJECTED),
    ],
)
def test_a_refusal_stands_until_it_is_due_and_then_goes_where_its_cause_has(problem: ApiError, reason: Reason) -> None:
    preflight, writer = Preflight(), Writer(problem)
    check(preflight, writer, 0.0)
    assert preflight.refusal is not None
    assert (preflight.refusal.reason, preflight.refusal.blocking) == (reason, True)
    assert preflight.sooner(None, 1.0) == AGAIN_SECONDS - 1.0
    check(preflight, writer, AGAIN_SECONDS - 0.1)
    assert writer.asked == 1
    writer.problem = None
    check(preflight, writer, AGAIN_SECONDS)
    assert (writer.asked, preflight.refusal, preflight.sooner(None, AGAIN_SECONDS)) == (2, None, None)


def test_a_changed_job_is_checked_at_once() -> None:
    preflight, writer = Preflight(), Writer(Invalid("no"))
    check(preflight, writer, 0.0, job(1))
    writer.problem = None
    check(preflight, writer, 1.0, job(2))
    assert preflight.refusal is None


def test_a_check_that_got_no_answer_is_made_again() -> None:
    preflight, writer = Preflight(), Writer(Unavailable("no"))
    for count in (1, 2):
        with pytest.raises(Unavailable):
            check(preflight, writer, 0.0)
        assert writer.asked == count
    writer.problem = Invalid("no")
    check(preflight, writer, 0.0)
    writer.problem = Unavailable("no")
    with pytest.raises(Unavailable):
        check(preflight, writer, AGAIN_SECONDS)
    writer.problem = None
    check(preflight, writer, AGAIN_SECONDS + 1)
    assert preflight.refusal is None, "a refusal does not outlive its check for a lost answer"


@pytest.mark.parametrize("spec", [{"suspend": True}, {"actors": {"replicas": "many"}}])
def test_a_job_that_makes_no_pods_is_not_checked_and_never_due(spec: dict[str, Any]) -> None:
    preflight, writer = Preflight(), Writer(QuotaExceeded("full"))
    check(preflight, writer, 0.0)
    still = job(2, **spec)
    check(preflight, writer, AGAIN_SECONDS + 1, still)
    assert writer.asked == 1
    assert preflight.sooner(None, AGAIN_SECONDS + 1) is None, "no turn follows on another at once"
    check(preflight, writer, AGAIN_SECONDS + 2, job(3))
    assert writer.asked == 2


def actor(number: int, **fields: Any) -> Member:
    return Member(f"actor-{number}", Role.ACTOR, Phase.READY, **fields)


def test_a_full_quota_keeps_a_job_out_and_bounds_one_that_is_up() -> None:
    preflight = Preflight()
    assert preflight.admitted([actor(0)]) is None
    preflight.quota_exceeded("full", 0.0)
    for members in ([], [Member("learner", Role.LEARNER, Phase.READY)]):
        outside = preflight.admitted(members)
        assert outside is not None
        assert (outside.admitted, outside.reason, outside.message) == (False, Reason.QUOTA_EXCEEDED, "full")
    inside = preflight.admitted([actor(0), actor(1), actor(2, asked=True)])
    assert inside is not None
    assert (inside.admitted, inside.max_actors, inside.message) == (True, 2, "full")


@pytest.mark.parametrize("problem", [NameConflict("taken"), KeysLost("gone")])
def test_what_was_refused_besides_pods_stands_until_it_can_be_made(problem: NameConflict | KeysLost) -> None:
    preflight, writer, taken, made = Preflight(), Writer(), True, 0

    async def make_children() -> None:
        nonlocal made
        made += 1
        if taken:
            raise problem

    def look(now: float) -> Reason | None:
        asyncio.run(preflight.check(job(), writer, now, make_children))
        return preflight.refusal.reason if preflight.refusal is not None else None

    assert look(-1.0) is None
    assert made == 0, "as long as nothing is refused they are made when pods are"
    preflight.children_refused(problem, 1, 0.0)
    reason = look(1.0)
    assert (made, look(AGAIN_SECONDS)) == (0, reason)
    assert (made, preflight.sooner(None, AGAIN_SECONDS)) == (1, AGAIN_SECONDS)
    taken = False
    assert look(2 * AGAIN_SECONDS) is None


def test_a_refused_template_comes_with_what_to_do() -> None:
    stored = {"storage": {"persistentVolumeClaim": {"claimName": "mine"}}}
    for checkpoint, words in (
        ({}, "set suspend: true and checkpoint.onSuspend: Skip with it, and resume"),
        ({"onSuspend": "Skip"}, "set suspend: true with it, and resume"),
        (stored, "set suspend: true with it, and resume"),
    ):
        preflight = Preflight()
        check(preflight, Writer(Invalid("spec.tolerations: no")), 0.0, job(checkpoint=checkpoint))
        assert preflight.refusal is not None
        assert preflight.refusal.message == f"spec.tolerations: no; to change a role, {words}"


def test_a_member_of_each_role_is_checked() -> None:
    assert one_of_each(job(actors={"replicas": 5})) == ["replay-0", "learner", "actor-0", "evaluator"]

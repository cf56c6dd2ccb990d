"""What the API server has admitted for one job holds for another's that is alike, for a while, and never where it was refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from rljob_operator.kube.apiserver.errors import ApiError, Invalid, QuotaExceeded, Unavailable
from rljob_operator.kube.job.admitted_alike import BELIEVED_SECONDS, AdmittedAlike

from .rendered import owned, pod_of


class ApiServer:
    """Admits pods as long as ``problem`` is None; an answer takes a moment."""

    def __init__(self) -> None:
        self.problem: ApiError | None = None
        self.asked, self.now = 0, 0.0
        self.admitted = AdmittedAlike(lambda: self.now)

    async def ask(self) -> None:
        self.asked += 1
        await asyncio.sleep(0)
        if self.problem is not None:
            raise self.problem

    async def try_one(self, image: str = "rl:1", namespace: str = "team") -> None:
        pod = {"metadata": {"namespace": namespace}, "spec": {"image": image}}
        await self.admitted.once(pod, self.ask)


def test_pods_that_are_alike_are_asked_for_once() -> None:
    async def story() -> None:
        server = ApiServer()
        await asyncio.gather(*(server.try_one() for _ in range(100)))
        assert server.asked == 1, "those that came meanwhile have waited for the answer"
        server.now = BELIEVED_SECONDS - 0.1
        await server.try_one()
        assert server.asked == 1
        server.now = BELIEVED_SECONDS
        await server.try_one()
        assert server.asked == 2

    asyncio.run(story())


def test_another_namespace_or_another_pod_is_another_question() -> None:
    async def story() -> None:
        server = ApiServer()
        for what in ({}, {"namespace": "other"}, {"image": "rl:2"}):
            await server.try_one(**what)
        assert server.asked == 3

    asyncio.run(story())


@pytest.mark.parametrize("problem", [QuotaExceeded("full"), Invalid("no"), Unavailable("away")])
def test_every_job_is_told_its_own_refusal(problem: ApiError) -> None:
    async def story() -> None:
        server = ApiServer()
        server.problem = problem
        results = await asyncio.gather(*(server.try_one() for _ in range(5)), return_exceptions=True)
        assert results == [problem] * 5
        assert server.asked == 5
        server.problem = None
        await server.try_one()
        assert server.asked == 6

    asyncio.run(story())


def test_a_refusal_makes_stale_what_was_admitted_in_the_namespace() -> None:
    async def story() -> None:
        server = ApiServer()
        await server.try_one()
        await server.try_one(namespace="other")
        server.problem = QuotaExceeded("full")
        with pytest.raises(QuotaExceeded):
            await server.try_one("rl:2")
        server.problem = None
        await server.try_one()
        await server.try_one(namespace="other")
        assert server.asked == 4, "of this namespace it is asked again, of the other one not"

    asyncio.run(story())


def test_one_that_is_cancelled_keeps_nobody_waiting() -> None:
    async def story() -> None:
        server = ApiServer()
        first = asyncio.create_task(server.try_one())
        second = asyncio.create_task(server.try_one())
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert first.cancelled()
        assert server.asked == 2

    asyncio.run(story())


ROLES = {"replay-0": "replay", "learner": "learner", "actor-0": "actors"}


@pytest.mark.parametrize("member", ROLES)
def test_pods_of_two_jobs_differ_by_their_names_alone(member: str) -> None:
    def nameless(*sets: str) -> dict[str, Any]:
        return pod_of(owned(*sets).nameless(), member)

    assert pod_of(owned(), member) != pod_of(owned("metadata.name=another"), member)
    assert nameless() == nameless("metadata.name=another")
    assert nameless() != nameless("metadata.namespace=elsewhere")
    assert nameless() != nameless(f"spec.{ROLES[member]}.serviceAccountName=mine")
    assert nameless() != nameless(f"spec.{ROLES[member]}.resources={{requests: {{cpu: 7}}}}")

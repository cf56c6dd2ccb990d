"""Leader election where no real server is needed: its times, and a process that was not there for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from rljob_operator.kube.apiserver.errors import NotLeader
from rljob_operator.kube.process.lease import Elector, LeaseTimes, new_identity

from tests.cluster.kube_client import connects
from tests.unit.operator.kube.fake_api_server import Answer, refuses, says, served

OURS = {
    "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1"},
    "spec": {"holderIdentity": "me"},
}


async def leading(work: Callable[[Elector], Awaitable[None]], *answers: Answer, **options: Any) -> Elector:
    """Let one lead, with these answers to the first look at the Lease, its creation and what follows; it, when that is over."""
    async with served(refuses(404, "NotFound"), says(201, OURS), *answers) as (server, _):
        elector = Elector(connects(server.url), "n", "a", "me", **options)
        with pytest.raises(NotLeader):
            elector.check()
        await elector.lead(lambda: work(elector))
        return elector


async def test_a_process_that_stood_still_may_write_nothing_when_it_wakes() -> None:
    """Before anything has had a turn to find out: the guard asks the clock."""
    seconds = 100.0

    async def work(elector: Elector) -> None:
        nonlocal seconds
        seconds += 9.9
        elector.check()
        seconds += 0.1
        with pytest.raises(NotLeader, match="me does not hold the lease n/a"):
            elector.check()

    assert not (await leading(work, steady=lambda: seconds)).leading


async def test_one_answer_that_takes_most_of_the_time_loses_no_lease() -> None:
    """A fifth of a lease's usual times: an answer of 8 seconds."""

    async def slow(request: web.Request) -> web.Response:
        await asyncio.sleep(8.0 / 5)
        return web.json_response(OURS)

    async def work(elector: Elector) -> None:
        ends = time.monotonic() + 13.0 / 5
        while time.monotonic() < ends:
            elector.check()
            await asyncio.sleep(0.1)

    await leading(work, slow, says(200, OURS), times=LeaseTimes(15.0 / 5, 10.0 / 5, 2.0 / 5))


def test_no_two_processes_have_the_same_identity() -> None:
    assert len({new_identity() for _ in range(100)}) == 100

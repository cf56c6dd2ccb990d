"""Leader election where no server is needed: its times, and a process that was not there for a while."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from rljob_operator.kube.apiserver.errors import NotLeader
from rljob_operator.kube.process.lease import Elector, LeaseTimes, new_identity

from tests.unit.operator.kube.fake_api_server import refuses, says, served


@pytest.mark.parametrize(
    "times",
    [
        {"retry_seconds": 6.0},
        {"retry_seconds": 0.0},
        {"renew_deadline_seconds": 7.0},
        {"stop_seconds": 4.0},
        {"duration_seconds": 9.0},
    ],
)
def test_times_with_which_two_could_lead_are_refused(times: dict[str, Any]) -> None:
    LeaseTimes()
    with pytest.raises(ValueError, match="_seconds must be"):
        LeaseTimes(**times)


def test_a_process_that_stood_still_may_write_nothing_when_it_wakes() -> None:
    """Before its loop has had a turn to find out: the guard asks the clock, not the loop."""
    seconds = 100.0
    made = {"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1"}, "spec": {}}

    async def story() -> None:
        nonlocal seconds
        async with served(refuses(404, "NotFound"), says(201, made)) as (_, client):
            elector = Elector(client, "n", "a", "me", steady=lambda: seconds)
            with pytest.raises(NotLeader):
                elector.check()

            async def work() -> None:
                nonlocal seconds
                elector.check()
                seconds += 5.9
                elector.check()
                seconds += 0.1
                with pytest.raises(NotLeader, match="me does not hold the lease n/a"):
                    elector.check()

            await elector.lead(work)
            assert not elector.leading

    asyncio.run(story())


def test_no_two_processes_have_the_same_identity() -> None:
    assert len({new_identity() for _ in range(100)}) == 100

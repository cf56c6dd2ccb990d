"""The recorder of events: what is sent again, what is too much, and that its caller never notices anything.

The server is `fake_api_server`; what a real one says to such events is in `tests/cluster/test_kube_statuses.py`.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import PODS, RLJOBS
from rljob_operator.kube.reporting.events import (
    AGAIN_SECONDS,
    MOST_OF_ONE,
    MOST_WAITING,
    EventRecorder,
    reference,
)

from tests.cluster.control_plane import meanwhile
from tests.support.clock import Clock
from tests.unit.operator.kube.fake_api_server import Answer, FakeApiServer, never, refuses, served

JOB = reference(RLJOBS, {"metadata": {"name": "pong", "namespace": "team", "uid": "u-1", "resourceVersion": "5"}})
POD = reference(PODS, {"metadata": {"name": "pong-learner-x", "namespace": "team", "uid": "u-2"}})


class Taken:
    """Answers as an API server does and notes what it is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        document = await request.json()
        self.sent.append((request.method, document))
        return web.json_response(document, status=201 if request.method == "POST" else 200)


class Recorder(EventRecorder):
    """Counts."""

    def __init__(self, client: Client, clock: Clock) -> None:
        super().__init__(client, "operator-1", clock, self.count)
        self.counts: Counter[str] = Counter()

    def count(self, outcome: str) -> None:
        self.counts[outcome] += 1


@pytest.fixture
def taken() -> Taken:
    return Taken()


@asynccontextmanager
async def recorded(*answers: Answer) -> AsyncIterator[tuple[Recorder, Clock, FakeApiServer]]:
    """A recorder, its clock, and a server with these answers."""
    async with served(*answers, timeout_seconds=1.0) as (server, client):
        clock = Clock(1000.0)
        yield Recorder(client, clock), clock, server


def say(recorder: Recorder, note: str = "it is too small", regarding: dict[str, Any] = JOB) -> None:
    recorder.record(regarding, "Warning", "Unschedulable", note, action="Starting")


async def told(recorder: Recorder, note: str = "it is too small", regarding: dict[str, Any] = JOB) -> None:
    """Say it, and wait until the server has been told."""
    say(recorder, note, regarding)
    await recorder.flush()


async def test_an_event_names_what_it_is_about(taken: Taken) -> None:
    async with recorded(taken) as (recorder, _, server):
        recorder.record(JOB, "Normal", "Started", "it runs", action="Starting")
        await recorder.flush()
        ((method, event),) = taken.sent
        assert method == "POST"
        assert server.asked[0].path == "/apis/events.k8s.io/v1/namespaces/team/events"
        assert event["metadata"]["name"].startswith("pong.")
        assert event["regarding"] == {
            "apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "name": "pong", "namespace": "team", "uid": "u-1",
            "resourceVersion": "5",
        }  # fmt: skip
        assert (event["reportingController"], event["reportingInstance"]) == ("rljob.dev/operator", "operator-1")


async def test_what_is_said_again_is_sent_again_after_a_while(taken: Taken) -> None:
    async with recorded(taken) as (recorder, clock, *_):
        for _ in range(500):
            clock.now += 1.0
            await told(recorder)
        assert [method for method, _ in taken.sent] == ["POST", "POST"]


async def test_an_object_that_says_too_much_does_not_keep_others_from_speaking(taken: Taken) -> None:
    async with recorded(taken) as (recorder, clock, *_):
        for number in range(200):
            say(recorder, f"note {number}")
        await told(recorder, regarding=POD)
        assert [event["regarding"]["kind"] for _, event in taken.sent] == ["RLJob"] * MOST_OF_ONE + ["Pod"]
        assert recorder.counts["dropped"] == 200 - MOST_OF_ONE
        clock.now += AGAIN_SECONDS + 1.0
        await told(recorder, "one more")
        assert taken.sent[-1][1]["note"] == "one more"


async def test_nothing_grows_without_bound_while_the_api_server_is_away() -> None:
    async with recorded(never()) as (recorder, *_):
        for number in range(3 * MOST_WAITING):
            say(recorder, regarding={**JOB, "uid": f"u-{number}"})
        assert (len(recorder._said), recorder.counts["dropped"]) == (MOST_WAITING, 2 * MOST_WAITING)


async def test_a_fault_is_waited_out_and_nothing_is_lost_or_doubled(taken: Taken) -> None:
    now = {"Retry-After": "0.01"}
    async with recorded(
        refuses(429, headers=now), refuses(500, headers=now), refuses(409, "AlreadyExists"), taken, taken
    ) as (recorder, _, server):
        say(recorder, "first")
        await told(recorder, "second")
        assert [event["note"] for _, event in taken.sent] == ["second"], "the first was there already"
        assert (recorder.counts["sent"], recorder.counts["dropped"]) == (2, 0)
        assert len({(await request.text()) for request in server.asked[:3]}) == 1, "the same event each time"


async def test_what_nobody_cares_about_any_more_is_dropped_with_its_fault() -> None:
    async with recorded(refuses(500)) as (recorder, clock, *_):
        say(recorder)
        clock.now += 400.0
        await asyncio.wait_for(recorder.flush(), 5.0)
        assert (recorder.counts["sent"], recorder.counts["dropped"]) == (0, 1)


async def test_a_refusal_is_final() -> None:
    async with recorded(refuses(403, "Forbidden", "namespace team is being terminated")) as (recorder, _, server):
        await told(recorder)
        await recorder.flush()
        assert (len(server.asked), recorder.counts["dropped"]) == (1, 1)


async def test_the_caller_of_a_defect_goes_on() -> None:
    async with recorded(never()) as (recorder, *_):
        recorder.record({}, "Normal", "Started", "it runs", action="Starting")
        assert recorder.counts["dropped"] == 1


async def test_a_note_is_cut_to_what_the_server_takes_counted_in_bytes(taken: Taken) -> None:
    async with recorded(taken) as (recorder, *_):
        await told(recorder, "ä" * 2000)
        note = taken.sent[0][1]["note"]
        assert len(note.encode()) <= 1024
        assert note.endswith("ä...")


async def test_it_sends_by_itself(taken: Taken) -> None:
    async with recorded(taken) as (recorder, *_), meanwhile(recorder.run()):
        for number in range(3):
            say(recorder, f"note {number}")
            await asyncio.sleep(0.1)
        assert len(taken.sent) == 3

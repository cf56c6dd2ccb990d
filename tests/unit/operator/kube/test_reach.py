"""Asking a learner through the API server: what is sent, and what counts as no answer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web
from rljob_operator.kube.reach import PodNetwork, PodsProxy
from rljob_operator.polls import reach
from rljob_operator.polls.poll import Learner, Poll, Rhythm
from rljob_operator.polls.reach import NoAnswer

from tests.unit.operator.kube.fake_api_server import never, refuses, says, served, text
from tests.unit.operator.kube.sample_pods import running_pod

POD = running_pod(0)
NAME = POD["metadata"]["name"]


def test_the_poll_goes_through_the_api_server_and_carries_the_token_past_it() -> None:
    sent: list[tuple[str, str, str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        body = await request.text()
        token = request.headers.get("X-RLJob-Token", "")
        sent.append((request.method, request.path, token, json.loads(body) if body else None))
        return web.json_response({"updates": 7}, status=202 if request.method == "POST" else 200)

    async def story() -> None:
        async with served(answer) as (_, client):
            told: list[str] = []
            proxy = PodsProxy(client)
            poll: Poll[str] = Poll(told.append, proxy, rhythm=Rhythm(0.05))
            poll.follow("pong", [Learner("a", proxy.url(POD, 9090), "s3cret")], 12.5)
            while poll.answer("pong").status is None:
                await asyncio.sleep(0.01)
            await poll.close()

    asyncio.run(story())
    proxy = f"/api/v1/namespaces/team/pods/{NAME}:9090/proxy"
    assert sent[:2] == [
        ("POST", f"{proxy}/checkpoint", "s3cret", {"sinceUnix": 12.5}),
        ("GET", f"{proxy}/status", "", None),
    ]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (refuses(403, "Forbidden", "user guest cannot get pods/proxy"), "the right to get pods/proxy in namespace team"),
        (refuses(503, "ServiceUnavailable", "dial tcp: no route to host"), "through the API server: dial tcp: no route"),
        (refuses(404, "NotFound", "pods not found"), "pods not found"),
        (never(), "has not answered within"),
        (says(200, {"text": "x" * 2000}), "more than 1,000 bytes"),
    ],
)  # fmt: skip
def test_what_is_no_answer(monkeypatch: pytest.MonkeyPatch, answer: Any, words: str) -> None:
    monkeypatch.setattr(reach, "LARGEST_BYTES", 1000)

    async def story() -> None:
        seconds = 0.3 if "has not answered" in words else 30.0
        async with served(answer) as (_, client):
            way = PodsProxy(client, timeout_seconds=seconds)
            with pytest.raises(NoAnswer, match=words):
                await way.read(way.url(POD, 9090), "status")
            assert (await way.send(way.url(POD, 9090), "checkpoint", {}, "")) is (words == "more than 1,000 bytes")

    asyncio.run(story())


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (says(200, {}), (200, "{}")),
        (text(503, "replay-0: no progress\n"), (503, "replay-0: no progress")),
        (text(503, "busy\n"), (503, "busy")),
        (text(503, "error trying to reach service: dial tcp 10.1.0.7:9090: connect: connection refused"), None),
        (refuses(403, "Forbidden", "user guest cannot get pods/proxy"), None),
        (refuses(404, "NotFound", "pods not found"), None),
        (refuses(503, "ServiceUnavailable", "the server is starting"), None),
        (never(), None),
    ],
)  # fmt: skip
def test_the_health_of_a_member_is_told_from_trouble_on_the_way_to_it(answer: Any, expected: Any) -> None:
    async def story() -> None:
        async with served(answer) as (_, client):
            way = PodsProxy(client, timeout_seconds=0.5)
            if expected is not None:
                assert await way.health(way.url(POD, 9090)) == expected
                return
            with pytest.raises(NoAnswer):
                await way.health(way.url(POD, 9090))

    asyncio.run(story())


def test_addresses_of_pods() -> None:
    assert PodNetwork().url({"status": {"podIP": "10.1.0.7"}}, 9090) == "http://10.1.0.7:9090"
    assert PodNetwork().url({"status": {"podIP": "fd00::7"}}, 9090) == "http://[fd00::7]:9090"

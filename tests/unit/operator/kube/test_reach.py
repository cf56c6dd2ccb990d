"""Asking members: through the API server, what counts as no answer, and whether a shard is alive."""

import asyncio
import contextlib
import json
import time
from typing import Any

import pytest
from aiohttp import web
from rljob.telemetry.server import TelemetryServer
from rljob_operator.core.rules.hangs import NAMED_SECONDS
from rljob_operator.kube.reach import PodNetwork, PodsProxy
from rljob_operator.polls.poll import (
    AGAIN_SECONDS,
    NEWS_SECONDS,
    NO_ANSWER,
    PERIOD_SECONDS,
    STANDS_STILL,
    Alive,
    LearnerPoll,
    Poll,
    Rhythm,
)
from rljob_operator.polls.reach import TIMEOUT_SECONDS, NoAnswer

from tests.support.waiting import until
from tests.unit.operator.kube.fake_api_server import never, refuses, says, served, text
from tests.unit.operator.kube.sample_pods import running_pod
from tests.unit.operator.kube.test_learner_poll import polling, serving

POD = running_pod(0)
NAME = POD["metadata"]["name"]


async def test_the_poll_goes_through_the_api_server_and_carries_the_token_past_it() -> None:
    sent: list[tuple[str, str, str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        body = await request.text()
        token = request.headers.get("X-RLJob-Token", "")
        sent.append((request.method, request.path, token, json.loads(body) if body else None))
        return web.json_response({"updates": 7}, status=202 if request.method == "POST" else 200)

    async with served(answer) as (_, client):
        told: list[str] = []
        proxy = PodsProxy(client)
        poll: Poll[str] = Poll(told.append, proxy, rhythm=Rhythm(0.05))
        poll.follow("pong", [LearnerPoll("a", proxy.url(POD, 9090), "s3cret")], 12.5)
        while poll.answer("pong").status is None:
            await asyncio.sleep(0.01)
        await poll.close()
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
async def test_what_is_no_answer(answer: Any, words: str) -> None:
    seconds = 0.3 if "has not answered" in words else 30.0
    async with served(answer) as (_, client):
        way = PodsProxy(client, timeout_seconds=seconds)
        with pytest.raises(NoAnswer, match=words):
            await way.read(way.url(POD, 9090), "status", 1000)
        assert (await way.send(way.url(POD, 9090), "checkpoint", {}, "")) is (words == "more than 1,000 bytes")


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
async def test_the_health_of_a_member_is_told_from_trouble_on_the_way_to_it(answer: Any, expected: Any) -> None:
    async with served(answer) as (_, client):
        way = PodsProxy(client, timeout_seconds=0.5)
        with contextlib.nullcontext() if expected is not None else pytest.raises(NoAnswer):
            assert await way.health(way.url(POD, 9090)) == expected


@pytest.mark.parametrize(("ip", "host"), [("10.1.0.7", "10.1.0.7"), ("fd00::7", "[fd00::7]")])
def test_addresses_of_pods(ip: str, host: str) -> None:
    assert PodNetwork().url({"status": {"podIP": ip}}, 9090) == f"http://{host}:9090"


def because(poll: Poll[str], incarnation: str = "a") -> str:
    silence = poll.silence("pong", incarnation)
    return silence.because if silence is not None else ""


async def test_a_silence_begins_with_the_first_question_that_has_no_answer_and_ends_with_the_next_that_has() -> None:
    async with serving() as shard, polling(0.3, again_seconds=0.05) as (poll, told):
        poll.follow("pong", [Alive("a", shard.url)])
        await until(lambda: shard.asked >= 3)
        assert (poll.silence("pong", "a"), told) == (None, []), "an answer like the one before is not told"
        before = time.time()
        shard.delay_seconds = 30.0
        await until(lambda: len(told) >= 2)
        silence = poll.silence("pong", "a")
        assert (silence.because, before <= silence.since <= time.time() - 0.3) == (NO_ANSWER, True)
        shard.delay_seconds, count = 0.0, len(told)
        await until(lambda: poll.silence("pong", "a") is None)
        assert len(told) > count


def test_a_member_is_asked_at_once_again_until_it_is_named_and_then_as_often_as_any_other() -> None:
    rhythm = Rhythm()
    assert rhythm.after_silence(0.0, 0.2) == AGAIN_SECONDS - 0.2
    assert 0 < rhythm.after_silence(NAMED_SECONDS, TIMEOUT_SECONDS) < AGAIN_SECONDS
    assert 0.8 * PERIOD_SECONDS <= rhythm.after_silence(NEWS_SECONDS, TIMEOUT_SECONDS) <= PERIOD_SECONDS
    assert NEWS_SECONDS >= 2 * NAMED_SECONDS + TIMEOUT_SECONDS, "a job is looked at once more after that it is named"


async def test_a_loop_that_stands_still_is_a_silence_and_a_server_with_many_callers_is_none() -> None:
    async with serving() as shard, polling(0.3, again_seconds=0.05) as (poll, _):
        with TelemetryServer("actor", 0, dict, lambda: True) as server:
            server.beat(0.0)
            poll.follow("pong", [Alive("a", server.url)])
            await until(lambda: because(poll) == STANDS_STILL)
            server.beat(60.0)
            await until(lambda: not because(poll))
        await until(lambda: bool(because(poll)))
        shard.code, shard.body = 503, b"busy\n"
        poll.follow("pong", [Alive("b", shard.url)])
        await until(lambda: shard.asked >= 3)
        assert not because(poll, "b")


def test_a_shard_that_dies_is_named_within_ten_seconds() -> None:
    """In the worst case it dies after an answer, so that a whole period passes before it is asked again."""
    first_without = PERIOD_SECONDS + TIMEOUT_SECONDS
    assert TIMEOUT_SECONDS < NAMED_SECONDS < 2 * TIMEOUT_SECONDS + 0.1, "one lost question names no shard, two do"
    assert first_without + 0.1 + TIMEOUT_SECONDS < 10.0
    assert NAMED_SECONDS / AGAIN_SECONDS + PERIOD_SECONDS < 10.0, "one that refuses the connection"

"""Asking learners, against servers on loopback: what counts as an answer, and that one that gives none is not waited for."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from rljob.api.learner_status import ReplaySummary
from rljob_operator.core.observed import CheckpointState, checkpoint_facts
from rljob_operator.kube.reach import PodNetwork
from rljob_operator.polls.poll import AGAIN_SECONDS, NEWS_SECONDS, LearnerPoll, Poll, Rhythm
from rljob_operator.polls.reach import LARGEST_BYTES

from tests.support.waiting import until
from tests.unit.operator.kube.fake_api_server import listening

GOOD = {
    "updates": 7,
    "replay": {"items": 5, "state": "filling"},
    "stages": {"learner": {"update": 1.0}},
    "checkpoint": {"state": "Valid", "path": "/run/7", "step": 7, "written_unix": 5.0, "digest": "ab"},
}
SOON_SECONDS = 25.0


class Serving:
    """A member: answers as ``body`` says; a learner takes requests for checkpoints once ``takes`` is set."""

    def __init__(self) -> None:
        self.body, self.code, self.delay_seconds = json.dumps(GOOD).encode(), 200, 0.0
        self.headers: dict[str, str] = {}
        self.takes, self.asked = True, 0
        self.wishes: list[tuple[Any, str]] = []
        self.endings: list[Any] = []
        self.url = ""

    async def status(self, _: web.Request) -> web.Response:
        self.asked += 1
        await asyncio.sleep(self.delay_seconds)
        return web.Response(body=self.body, status=self.code, headers=self.headers)

    async def checkpoint(self, request: web.Request) -> web.Response:
        self.wishes.append((await request.json(), request.headers.get("Authorization", "")))
        return web.Response(status=202 if self.takes else 503)

    async def ending(self, request: web.Request) -> web.Response:
        self.endings.append(await request.json())
        return web.Response(status=202 if self.takes else 503)


@asynccontextmanager
async def serving() -> AsyncIterator[Serving]:
    learner = Serving()
    routes = (
        web.get("/status", learner.status),
        web.get("/healthz", learner.status),
        web.post("/checkpoint", learner.checkpoint),
        web.post("/ending", learner.ending),
    )
    async with listening(*routes) as learner.url:
        yield learner


@asynccontextmanager
async def polling(
    timeout_seconds: float = 0.5,
    period_seconds: float = 0.05,
    news_seconds: float = NEWS_SECONDS,
    again_seconds: float = AGAIN_SECONDS,
    reach: PodNetwork | None = None,
    **options: Any,
) -> AsyncIterator[tuple[Poll[str], list[str]]]:
    told: list[str] = []
    rhythm = Rhythm(period_seconds, again_seconds, news_seconds)
    poll: Poll[str] = Poll(told.append, reach or PodNetwork(timeout_seconds), rhythm=rhythm, **options)
    try:
        yield poll, told
    finally:
        await poll.close()


async def test_an_answer_is_kept_as_far_as_decisions_are_made_from_it() -> None:
    async with serving() as learner, polling() as (poll, told):
        assert poll.answer("pong").status is None
        poll.follow("pong", [LearnerPoll("a", learner.url)])
        await until(lambda: bool(told))
        answer = poll.answer("pong")
        status, found = answer.status, checkpoint_facts(answer.status.checkpoint)
        assert (status.updates, answer.missing, poll.silence("pong", "a")) == (7, "", None)
        assert status.replay == ReplaySummary(items=5, state="filling"), "a deadline depends on it"
        assert status.stages == {"learner": {"update": 1.0}}, "what more would bring is said of them"
        assert (found.state, found.uri, found.digest) == (CheckpointState.VERIFIED, "file:///run/7", "sha256:ab")
        await until(lambda: learner.asked >= 3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"body": b"<html>"}, "no JSON"),
        ({"body": b"\xff\xfe{"}, "no JSON"),
        ({"body": b"[" * 100_000}, "no JSON"),
        ({"body": b"[]"}, "no JSON object"),
        ({"body": b'{"updates": NaN}'}, "no JSON"),
        ({"body": b"{}"}, "updates"),
        ({"code": 500}, "HTTP 500"),
        ({"code": 302, "headers": {"Location": "/elsewhere"}}, "HTTP 302"),
        ({"delay_seconds": 2.0}, "within 0.5 s"),
        ({"body": b"[" + b"1," * (4 << 20)}, "more than 8,388,608 bytes"),
    ],
)
async def test_what_is_no_answer_counts_as_silence(changes: dict[str, Any], words: str) -> None:
    seconds = 30.0 if "bytes" in words else 0.5
    async with serving() as learner, polling(seconds, now=lambda: 100.0) as (poll, told):
        poll.follow("pong", [LearnerPoll("a", learner.url)])
        await until(lambda: poll.answer("pong").status is not None)
        told.clear()
        for name, value in changes.items():
            setattr(learner, name, value)
        await until(lambda: poll.silence("pong", "a") is not None)
        answer, silence = poll.answer("pong"), poll.silence("pong", "a")
        assert (words in answer.missing, answer.status.updates) == (True, 7)
        assert (silence.since, silence.because) == (100.0, answer.missing)
        learner.body, learner.code, learner.delay_seconds = json.dumps(GOOD).encode(), 200, 0.0
        await until(lambda: poll.silence("pong", "a") is None)


async def test_long_answers_are_read_one_at_a_time() -> None:
    class Counting(PodNetwork):
        under_way, most = 0, 0

        async def read(self, url: str, page: str, most_bytes: int = LARGEST_BYTES) -> bytes:
            self.under_way += most_bytes == LARGEST_BYTES
            self.most = max(self.most, self.under_way)
            try:
                return await super().read(url, page, most_bytes)
            finally:
                self.under_way -= most_bytes == LARGEST_BYTES

    reach = Counting()
    async with serving() as learner, polling(period_seconds=0.01, reach=reach) as (poll, told):
        learner.body = json.dumps({**GOOD, "weights": {"text": "x" * (1 << 20)}}).encode()
        for name in "abcdefgh":
            poll.follow(name, [LearnerPoll("a", learner.url)])
        await until(lambda: set(told) == set("abcdefgh"))
        assert ({poll.answer(name).status.updates for name in told}, reach.most) == ({7}, 1)


async def test_figures_alone_are_told_apart_from_news() -> None:
    figures: list[str] = []
    async with serving() as learner, polling(period_seconds=0.01, on_figures=figures.append) as (poll, news):
        poll.follow("pong", [LearnerPoll("a", learner.url)])
        await until(lambda: len(figures) > 2)
        assert len(news) == 1, "the first answer"
        for count, change in enumerate(({"standstill": "no batch"}, {"following": "x"}, {"epoch": 3}), start=2):
            learner.body = json.dumps({**json.loads(learner.body), **change}).encode()
            await until(lambda: len(news) == count)  # noqa: B023
        learner.code = 500
        await until(lambda: len(news) > 5)


async def test_of_a_silence_that_is_no_news_any_more_only_other_words_and_its_end_are_told() -> None:
    async with serving() as learner, polling(timeout_seconds=30.0, news_seconds=0.2) as (poll, told):
        learner.code = 500
        poll.follow("pong", [LearnerPoll("a", learner.url)])
        await until(lambda: len(told) > 2)
        silence = poll.silence("pong", "a")
        assert silence is not None
        await until(lambda: time.time() - silence.since > 0.4)
        count, asked = len(told), learner.asked
        await until(lambda: learner.asked > asked + 3)
        assert len(told) == count
        learner.code = 501
        await until(lambda: len(told) == count + 1)
        learner.code = 200
        await until(lambda: len(told) > count + 1)
        assert poll.silence("pong", "a") is None


async def test_a_request_for_a_checkpoint_is_passed_on_until_it_is_taken_and_then_no_more() -> None:
    async with serving() as learner, polling() as (poll, _):
        learner.takes = False
        poll.follow("pong", [LearnerPoll("a", learner.url, "secret")], 12.5)
        await until(lambda: len(learner.wishes) >= 2)
        learner.takes = True
        before = len(learner.wishes)
        await until(lambda: len(learner.wishes) > before)
        taken, asked = len(learner.wishes), learner.asked
        await until(lambda: learner.asked > asked + 3)
        assert learner.wishes == [({"sinceUnix": 12.5}, "Bearer secret")] * taken
        poll.follow("pong", [LearnerPoll("a", learner.url, "secret")], 12.5)
        poll.follow("pong", [LearnerPoll("a", learner.url, "secret")], None)
        asked = learner.asked
        await until(lambda: learner.asked > asked + 2)
        assert len(learner.wishes) == taken
        poll.follow("pong", [LearnerPoll("a", learner.url, "secret")], 20.0)
        await until(lambda: len(learner.wishes) > taken)
        assert learner.wishes[-1][0] == {"sinceUnix": 20.0}


async def test_a_new_request_does_not_wait_for_the_next_round() -> None:
    async with serving() as learner, polling(period_seconds=600.0) as (poll, told):
        poll.follow("pong", [LearnerPoll("a", learner.url)])
        await until(lambda: bool(told))
        poll.follow("pong", [LearnerPoll("a", learner.url)], 3.0)
        await until(lambda: bool(learner.wishes))
        poll.follow("pong", [LearnerPoll("a", learner.url)], 3.0, "Complete")
        await until(lambda: bool(learner.endings))
        assert learner.endings == [{"state": "Complete"}]
        assert len(learner.wishes) == 1, "the other request was taken before"


async def test_a_learner_that_does_not_follow_a_change_yet_is_asked_again_soon() -> None:
    async with serving() as learner, polling(period_seconds=60.0) as (poll, _):
        poll.follow("pong", [LearnerPoll("a", learner.url)], changes={"live": {}})
        await until(lambda: learner.asked >= 3)


async def test_the_late_word_of_a_learner_that_was_superseded_is_not_taken() -> None:
    """Its answer may come at the very moment at which another learner is asked in its place."""

    class LateReach(PodNetwork):
        async def read(self, url: str, page: str, most_bytes: int = 0) -> bytes:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.2)
            return json.dumps({"updates": 1 if url.endswith("old") else 2}).encode()

    async with polling(period_seconds=0.01, reach=LateReach()) as (poll, told):
        for life, url in (("a", "old"), ("b", "new")):
            poll.follow("pong", [LearnerPoll(life, url)])
            await asyncio.sleep(0.05)
        assert told == []
        await until(lambda: bool(told))
        assert poll.answer("pong").status.updates == 2


async def test_another_life_of_the_learner_is_asked_in_the_place_of_the_one_before() -> None:
    async with serving() as old, serving() as new, polling() as (poll, told):
        poll.follow("pong", [LearnerPoll("a", old.url)], 3.0)
        await until(lambda: bool(old.wishes) and poll.answer("pong").status is not None)
        old.code = 500
        await until(lambda: poll.silence("pong", "a") is not None)
        new.delay_seconds = 0.3
        poll.follow("pong", [LearnerPoll("b", new.url)], 3.0)
        assert poll.silence("pong", "b") is None, "this one has not been asked yet"
        assert poll.answer("pong").status is not None
        asked = old.asked
        await until(lambda: new.asked >= 2)
        assert old.asked <= asked + 1
        assert new.wishes, "the request is this one's, too"
        poll.follow("pong", ())
        told.clear()
        await asyncio.sleep(0.2)
        assert told == []
        assert poll.answer("pong").status is not None
        poll.forget("pong")
        assert poll.answer("pong").status is None


async def test_a_thousand_that_do_not_answer_hold_up_nobody() -> None:
    held: set[asyncio.StreamWriter] = set()

    async def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.add(writer)

    server = await asyncio.start_server(hold, "0.0.0.0", 0, backlog=2048)
    port = server.sockets[0].getsockname()[1]
    async with serving() as learner, polling(period_seconds=0.1, timeout_seconds=30.0) as (poll, told):
        for number in range(1000):
            url = f"http://127.0.{number // 250 + 1}.{number % 250 + 1}:{port}"
            poll.follow(f"silent-{number}", [LearnerPoll("a", url)])
        poll.follow("pong", [LearnerPoll("a", learner.url)])
        began = time.monotonic()
        await until(lambda: learner.asked >= 5)
        assert set(told) == {"pong"}
        assert time.monotonic() - began < SOON_SECONDS
    server.close()
    for writer in held:
        writer.close()

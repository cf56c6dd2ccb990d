"""Asking shards whether they are alive, against servers on loopback."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from rljob_operator.core.rules.hangs import NAMED_SECONDS
from rljob_operator.kube.reach import PodNetwork
from rljob_operator.polls.poll import (
    AGAIN_SECONDS,
    NEWS_SECONDS,
    NO_ANSWER,
    PERIOD_SECONDS,
    STANDS_STILL,
    Alive,
    Poll,
    Rhythm,
)
from rljob_operator.polls.reach import TIMEOUT_SECONDS

SOON_SECONDS = 5.0


class Serving:
    def __init__(self) -> None:
        self.code, self.body, self.delay_seconds, self.asked = 200, "ok", 0.0, 0
        self.url = ""

    async def healthz(self, _: web.Request) -> web.Response:
        self.asked += 1
        await asyncio.sleep(self.delay_seconds)
        return web.Response(status=self.code, text=self.body)


@asynccontextmanager
async def asking(
    timeout_seconds: float = 0.3, news_seconds: float = NEWS_SECONDS
) -> AsyncIterator[tuple[Serving, Poll[str], list[str]]]:
    shard, told = Serving(), list[str]()
    application = web.Application()
    application.add_routes([web.get("/healthz", shard.healthz)])
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    shard.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    poll: Poll[str] = Poll(told.append, PodNetwork(timeout_seconds), rhythm=Rhythm(0.05, 0.05, news_seconds))
    try:
        yield shard, poll, told
    finally:
        await poll.close()
        await runner.cleanup()


async def until(holds: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < SOON_SECONDS
        await asyncio.sleep(0.005)


def because(poll: Poll[str], incarnation: str = "a") -> str:
    silence = poll.silence("pong", incarnation)
    return silence.because if silence is not None else ""


def test_a_silence_begins_with_the_first_question_that_has_no_answer_and_ends_with_the_next_that_has() -> None:
    async def story() -> None:
        async with asking() as (shard, poll, told):
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

    asyncio.run(story())


def test_of_a_silence_that_is_no_news_any_more_only_other_words_and_its_end_are_told() -> None:
    async def story() -> None:
        async with asking(2.0, news_seconds=0.2) as (shard, poll, told):
            shard.code, shard.body = 503, "no turn for 61 s"
            poll.follow("pong", [Alive("a", shard.url)])
            await until(lambda: len(told) > 2)
            await asyncio.sleep(0.3)
            count, asked = len(told), shard.asked
            await until(lambda: shard.asked > asked + 3)
            assert len(told) == count
            shard.delay_seconds = 30.0
            await until(lambda: because(poll) == NO_ANSWER)
            assert len(told) == count + 1
            shard.code, shard.body, shard.delay_seconds = 200, "ok", 0.0
            await until(lambda: not because(poll))
            assert len(told) == count + 2

    asyncio.run(story())


def test_a_member_is_asked_at_once_again_until_it_is_named_and_then_as_often_as_any_other() -> None:
    rhythm = Rhythm()
    assert rhythm.after_silence(0.0, 0.2) == AGAIN_SECONDS - 0.2
    assert 0 < rhythm.after_silence(NAMED_SECONDS, TIMEOUT_SECONDS) < AGAIN_SECONDS
    assert 0.8 * PERIOD_SECONDS <= rhythm.after_silence(NEWS_SECONDS, TIMEOUT_SECONDS) <= PERIOD_SECONDS
    assert NEWS_SECONDS >= 2 * NAMED_SECONDS + TIMEOUT_SECONDS, "a job is looked at once more after that it is named"


def test_a_loop_that_stands_still_is_a_silence_and_a_server_with_many_callers_is_none() -> None:
    async def story() -> None:
        async with asking() as (shard, poll, _):
            shard.code, shard.body = 503, "no turn for 61 s"
            poll.follow("pong", [Alive("a", shard.url)])
            await until(lambda: because(poll) == STANDS_STILL)
            shard.body = "busy\n"
            await until(lambda: not because(poll))

    asyncio.run(story())


def test_another_life_is_asked_anew_and_nobody_asks_for_one_that_is_gone() -> None:
    async def story() -> None:
        async with asking() as (shard, poll, told):
            poll.follow("pong", [Alive("a", "http://127.0.0.1:1")])
            await until(lambda: because(poll) == NO_ANSWER)
            poll.follow("pong", [Alive("b", shard.url)])
            assert poll.silence("pong", "a") is None
            await until(lambda: shard.asked >= 2)
            assert because(poll, "b") == ""
            poll.follow("pong", ())
            asked, count = shard.asked, len(told)
            await asyncio.sleep(0.2)
            assert (shard.asked, len(told)) == (asked, count)

    asyncio.run(story())


def test_a_shard_that_dies_is_named_within_ten_seconds() -> None:
    """In the worst case it dies after an answer, so that a whole period passes before it is asked again."""
    first_without = PERIOD_SECONDS + TIMEOUT_SECONDS
    assert TIMEOUT_SECONDS < NAMED_SECONDS < 2 * TIMEOUT_SECONDS + 0.1, "one lost question names no shard, two do"
    assert first_without + 0.1 + TIMEOUT_SECONDS < 10.0
    assert NAMED_SECONDS / AGAIN_SECONDS + PERIOD_SECONDS < 10.0, "one that refuses the connection"

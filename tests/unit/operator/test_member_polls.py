"""What counts as an answer of a process, over real sockets: never garbage, never zeros, never a controller that waits."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from rljob.api.status_document import json_document
from rljob_operator.local.member_polls import MemberPolls
from rljob_operator.local.reach import Loopback
from rljob_operator.polls.poll import Alive, Poll, Rhythm, Silence
from rljob_operator.polls.poll import Learner as Target
from rljob_operator.polls.reach import NoAnswer

from tests.support.waiting import eventually


class Learner:
    """An HTTP server that answers `/status` with whatever a test puts into ``body``."""

    def __init__(self) -> None:
        self.body, self.code, self.delay_seconds = b"{}", 200, 0.0
        self.asked, self.may_answer = threading.Event(), threading.Event()
        self.may_answer.set()
        self.wishes: list[Any] = []
        learner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                time.sleep(learner.delay_seconds)
                learner.asked.set()
                learner.may_answer.wait()
                self.send_response(learner.code)
                self.end_headers()
                self.wfile.write(learner.body)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                learner.wishes.append((body, self.headers.get("Authorization")))
                self.send_response(202)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


@pytest.fixture
def learner() -> Iterator[Learner]:
    learner = Learner()
    yield learner
    learner.server.shutdown()
    learner.server.server_close()


def read(url: str, timeout_seconds: float = 30.0) -> bytes:
    return asyncio.run(Loopback(timeout_seconds).read(url, "status"))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "no JSON"),
        (b"<html>busy</html>", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b'{"updates": NaN}', "no JSON"),
        (b'{"updates": 1', "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[1]", "no JSON object"),
        (b'{"x": "' + b"y" * (9 << 20) + b'"}', "bytes"),
    ],
)
def test_garbage_is_no_answer(learner: Learner, body: bytes, words: str) -> None:
    learner.body = body
    with pytest.raises((NoAnswer, ValueError), match=words):
        json_document(read(learner.url))


def test_errors_and_silence_are_no_answer(learner: Learner) -> None:
    learner.code = 500
    with pytest.raises(NoAnswer, match="its status answers with HTTP 500"):
        read(learner.url)
    learner.code, learner.delay_seconds = 200, 1.0
    with pytest.raises(NoAnswer, match=r"it has not answered within 0\.2 s"):
        read(learner.url, 0.2)
    for url in ("http://127.0.0.1:1", "http://127.0.0.1:99999999", "nonsense", ""):
        with pytest.raises(NoAnswer, match=r"its status can't be read: ."):
            read(url)


@pytest.mark.parametrize("answer", [b"", b"hello", b"HTTP/1.0", b"HTTP/1.0 ok\r\n\r\n", b"\xff" * 100])
def test_what_is_no_http_is_no_answer(answer: bytes) -> None:
    async def story() -> None:
        async def say(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(answer)
            writer.close()

        async with await asyncio.start_server(say, "127.0.0.1", 0) as server:
            with pytest.raises(NoAnswer, match="its healthz can't be read"):
                await Loopback().health(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")

    asyncio.run(story())


def test_the_controller_never_waits_and_knows_why_there_is_nothing(learner: Learner) -> None:
    polls = MemberPolls(status=Rhythm(0.02, 0.02), reach=Loopback(600.0))
    try:
        assert polls.answer.status is None
        learner.body = b'{"updates": 7}'
        before = time.time()
        polls.watch([], Target("a", learner.url))
        status = eventually(lambda: polls.answer.status)
        assert status.updates == 7
        assert before <= status.taken_seconds <= time.time()
        assert polls.answer.missing == ""
        learner.body = b"nonsense"
        eventually(lambda: polls.answer.missing == "learner: its status is no JSON")
        assert polls.answer.status.updates == 7
        learner.may_answer.clear()
        learner.asked.clear()
        assert learner.asked.wait(60)
        held = polls.answer
        for _ in range(100):
            polls.watch([], Target("a", learner.url))
            assert polls.answer is held, "no look waits for an answer that is held back"
    finally:
        learner.may_answer.set()
        polls.close()


def test_a_wish_for_a_checkpoint_is_passed_on_once_to_each_life_of_the_learner(learner: Learner) -> None:
    other = Learner()
    polls = MemberPolls(status=Rhythm(0.02, 0.02), reach=Loopback(60.0))
    wish = ({"sinceUnix": 12.5}, "Bearer secret")
    try:
        polls.watch([], Target("a", learner.url, "secret"), 12.5)
        eventually(lambda: learner.wishes)
        time.sleep(0.2)
        assert learner.wishes == [wish]
        polls.watch([], Target("b", other.url, "secret"), 12.5)
        eventually(lambda: other.wishes)
        polls.watch([], Target("b", other.url, "secret"))
        time.sleep(0.1)
        assert (learner.wishes, other.wishes) == ([wish], [wish])
    finally:
        polls.close()
        other.server.shutdown()
        other.server.server_close()


def test_time_in_which_nobody_was_there_to_hear_is_no_silence() -> None:
    """As where the machine slept between two questions, or this process stood still during one."""
    moments = [0.0, 100.0, 130.0, 130.5, 131.0, 131.5]

    class Absent(Loopback):
        async def health(self, url: str) -> tuple[int, str]:
            raise NoAnswer("nothing is there")

    async def story() -> list[Silence]:
        found: list[Silence] = []
        steps = iter(moments)
        done = asyncio.Event()

        def steady() -> float:
            return next(steps, 200.0)

        def note(key: str) -> None:
            silence = poll.silence(key, "a")
            assert silence is not None
            found.append(silence)
            if len(found) == 3:
                done.set()

        poll: Poll[str] = Poll(note, Absent(), rhythm=Rhythm(0.01, 0.01), steady=steady)
        poll.follow("", [Alive("a", "")])
        await done.wait()
        await poll.close()
        return found

    assert [each.heard_seconds for each in asyncio.run(story())] == [2.0, 5.0, 6.0]

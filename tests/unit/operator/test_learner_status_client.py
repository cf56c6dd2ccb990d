"""What counts as an answer of the learner, over real sockets: never garbage, never zeros, never a controller that waits."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from rljob.api.status_document import json_document
from rljob_operator.local import learner_status_client
from rljob_operator.local.learner_status_client import LearnerStatusClient, NoAnswer, fetch

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
                learner.wishes.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
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
        json_document(fetch(learner.url, timeout_seconds=30.0))


def test_errors_and_silence_are_no_answer(learner: Learner) -> None:
    learner.code = 500
    with pytest.raises(NoAnswer, match="HTTP 500"):
        fetch(learner.url, timeout_seconds=30.0)
    learner.code, learner.delay_seconds = 200, 1.0
    with pytest.raises(NoAnswer, match="not answered"):
        fetch(learner.url, timeout_seconds=0.2)
    with pytest.raises(NoAnswer, match="can't be read"):
        fetch("http://127.0.0.1:1")


def test_the_controller_never_waits_and_knows_why_there_is_nothing(
    learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner_status_client, "fetch", partial(fetch, timeout_seconds=600.0))
    url: list[str | None] = [None]
    client = LearnerStatusClient(lambda: url[0], period_seconds=0.02)
    try:
        assert "not announced" in client.answer.problem
        learner.body = b'{"updates": 7}'
        before = time.time()
        url[0] = learner.url
        status = eventually(lambda: client.answer.status)
        assert status.updates == 7
        assert before <= status.taken_seconds <= time.time()
        learner.body = b"nonsense"
        eventually(lambda: "no JSON" in client.answer.problem)
        assert client.answer.status is not None, "what it said last stays"
        assert client.answer.status.updates == 7
        learner.may_answer.clear()
        learner.asked.clear()
        assert learner.asked.wait(60)
        held = client.answer
        for _ in range(100):
            assert client.answer is held, "no look waits for an answer that is held back"
    finally:
        learner.may_answer.set()
        client.close()


def test_a_wish_for_a_checkpoint_is_passed_on_once_to_each_life_of_the_learner(
    learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner_status_client, "_TIMEOUT_SECONDS", 60.0)
    other = Learner()
    url = [learner.url]
    client = LearnerStatusClient(lambda: url[0], period_seconds=0.02)
    try:
        client.want_checkpoint(12.5)
        eventually(lambda: learner.wishes)
        time.sleep(0.2)
        assert learner.wishes == [{"sinceUnix": 12.5}]
        url[0] = other.url
        eventually(lambda: other.wishes)
        client.want_checkpoint(None)
        time.sleep(0.1)
        assert (len(learner.wishes), len(other.wishes)) == (1, 1)
    finally:
        client.close()
        other.server.shutdown()
        other.server.server_close()

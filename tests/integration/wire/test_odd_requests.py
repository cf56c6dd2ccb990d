"""Whatever is asked of a role's pages over HTTP is answered, and the pages go on."""

from __future__ import annotations

import http.client
import json
import urllib.request
from typing import Any

import pytest
from rljob.roles.learner import wanted_since
from rljob.telemetry.server import TelemetryServer

SECONDS = 60.0
REQUESTS = [
    ("GET", "//[", b"", 404),
    ("GET", "http://[::1", b"", 404),
    ("GET", "/status?" + "x" * 3000, b"", 200),
    ("GET", "/" + "x" * 70_000, b"", 414),
    ("BREW", "/status", b"", 501),
    ("POST", "/checkpoint", b"{", 400),
    ("POST", "/checkpoint", b"[]", 400),
    ("POST", "/checkpoint", b"[" * 4000, 400),
    ("POST", "/checkpoint", b"\xff" * 9, 400),
    ("POST", "/checkpoint", b"{}", 400),
    ("POST", "/checkpoint", b'{"sinceUnix": 1' + b"0" * 400 + b"}", 400),
    ("POST", "/checkpoint", b'{"sinceUnix": 1e999}', 400),
    ("POST", "/checkpoint", b'{"sinceUnix": NaN}', 400),
    ("POST", "/checkpoint", b'{"sinceUnix": -1}', 400),
    ("POST", "/checkpoint", b'{"sinceUnix": 12.5}', 202),
    ("POST", "/checkpoint", b"x" * 5000, 413),
    ("POST", "//[", b"{}", 404),
    ("POST", "/defect", b"{}", 500),
]


@pytest.mark.parametrize(("method", "path", "body", "code"), REQUESTS, ids=range(len(REQUESTS)))
def test_every_request_is_answered(method: str, path: str, body: bytes, code: int) -> None:
    def defect(note: Any) -> None:
        raise KeyError("a defect of the role")

    requests = {"/checkpoint": lambda note: wanted_since(note) and None, "/defect": defect}
    with TelemetryServer("learner", 0, lambda: {"updates": 7}, lambda: True, requests=requests) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
        # Past the checks of the client library, which would not send it.
        connection.putrequest(method, "/", skip_accept_encoding=True)
        connection._buffer[0] = f"{method} {path} HTTP/1.1".encode()  # type: ignore[attr-defined]
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        assert answer.status == code, answer.read()
        connection.close()
        with urllib.request.urlopen(f"{server.url}/status", timeout=SECONDS) as page:
            assert json.load(page) == {"updates": 7}

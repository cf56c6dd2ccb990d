"""The telemetry server over real sockets: its four pages, its promises, and its patience with bad callers."""

import json
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from rljob.telemetry.metrics import role_registry
from rljob.telemetry.server import TelemetryServer, is_loopback

from tests.support.waiting import eventually


class Role:
    """A status and a readiness that a test can change."""

    def __init__(self) -> None:
        self.status: dict[str, Any] = {"role": "learner", "updates": 7, "loss": float("nan")}
        self.ready = False
        self.error: Exception | None = None

    def read(self) -> dict[str, Any]:
        if self.error:
            raise self.error
        return self.status


@pytest.fixture
def role() -> Role:
    return Role()


@pytest.fixture
def server(role: Role) -> Iterator[TelemetryServer]:
    with TelemetryServer("learner", 0, role.read, lambda: role.ready, role_registry("learner", role.read)) as server:
        yield server


def get(server: TelemetryServer, path: str) -> tuple[int, str]:
    return answer(server.url + path)


def answer(request: urllib.request.Request | str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_status_is_strict_json(server: TelemetryServer, role: Role) -> None:
    role.status |= {"n": np.int64(3), "array": np.arange(2), "where": {"inf": float("inf")}}
    code, body = get(server, "/status?pretty=1")
    document = json.loads(body, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert code == 200
    assert document == {
        "role": "learner", "updates": 7, "loss": None, "n": 3, "array": [0, 1], "where": {"inf": None},
    }  # fmt: skip


def test_metrics_parse_as_prometheus_text(server: TelemetryServer) -> None:
    code, body = get(server, "/metrics")
    value = {family.name: family.samples[0].value for family in text_string_to_metric_families(body) if family.samples}
    assert (code, value["rljob_learner_updates"]) == (200, 7)
    least = {"rljob_rss_bytes": 1 << 20, "rljob_cpu_seconds": 1e-9, "rljob_open_files": 3}
    assert all(value[name] >= number for name, number in least.items()), value


def test_ready_follows_the_role(server: TelemetryServer, role: Role) -> None:
    assert get(server, "/readyz") == (503, "learner: not ready\n")
    role.ready = True
    assert get(server, "/readyz") == (200, "learner: ready\n")


def test_health_is_a_promise_of_the_next_beat(server: TelemetryServer) -> None:
    assert get(server, "/healthz")[0] == 200, "a role that starts is alive"
    server.beat(within_seconds=30)
    assert get(server, "/healthz")[0] == 200
    server.beat(within_seconds=0.05)
    time.sleep(0.1)
    code, reason = get(server, "/healthz")
    assert (code, bool(re.search(r"limit 0\.[01] s", reason))) == (503, True), reason
    server.beat()
    assert get(server, "/healthz")[0] == 200


def test_of_a_loop_that_stands_still_the_log_says_once_where(
    server: TelemetryServer, caplog: pytest.LogCaptureFixture
) -> None:
    done = threading.Event()

    def loop() -> None:
        server.beat(within_seconds=0.05)
        done.wait(30)

    thread = threading.Thread(target=loop)
    thread.start()
    time.sleep(0.2)
    assert [get(server, "/healthz")[0] for _ in range(3)] == [503] * 3
    done.set()
    thread.join()
    (found,) = (record.getMessage() for record in caplog.records if "no progress" in record.getMessage())
    assert re.search(r"it is at (threading|test_server)\.py:\d+, in (wait|loop)", found)


def test_an_exception_is_answered_with_its_reason_and_survived(server: TelemetryServer, role: Role) -> None:
    role.error = RuntimeError("the mirror is <gone>")
    for path in ("/status", "/metrics"):
        code, body = get(server, path)
        assert (code, "RuntimeError: the mirror is <gone>" in json.loads(body)["error"]) == (500, True)
    role.error = None
    assert get(server, "/status")[0] == 200


def test_unknown_page_names_the_known_ones(server: TelemetryServer) -> None:
    code, body = get(server, "/metric")
    assert (code, "/metrics, /healthz, /readyz, /status" in body) == (404, True)


def test_slow_and_rude_callers_hold_nobody_up(server: TelemetryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.create_connection((server.host, server.port))) as rude:
        rude.sendall(b"\x00\xff" * 400 + b"\r\n\r\n")
        assert get(server, "/readyz")[0] == 503
    monkeypatch.setattr("rljob.telemetry.server._CLIENT_TIMEOUT_SECONDS", 1.0)
    with ExitStack() as held:
        opened = (socket.create_connection((server.host, server.port), timeout=10) for _ in range(40))
        callers = [held.enter_context(each) for each in opened]
        with suppress(OSError):  # the first ones hold the places, so the last one is turned away
            callers[-1].recv(12)

        def ready() -> bool:
            for each in callers:
                with suppress(OSError):
                    each.send(b"G")  # never silent for long, and never done
            with suppress(OSError):
                return get(server, "/readyz") == (503, "learner: not ready\n")
            return False

        eventually(ready, "it answers no more", 70)


def test_binds_loopback_unless_told() -> None:
    with TelemetryServer("actor", 0, dict, bool) as server:
        assert server.host == "127.0.0.1"
        with pytest.raises(OSError, match=f"the replay cannot serve its metrics on 127.0.0.1:{server.port}"):
            TelemetryServer("replay", server.port, dict, bool)
    with TelemetryServer("actor", 0, dict, bool, host="0.0.0.0") as server:
        assert (server.host, get(server, "/status")) == ("0.0.0.0", (200, "{}"))
    server.close()  # a second time is allowed


def post(server: TelemetryServer, path: str, body: bytes, **headers: str) -> tuple[int, str]:
    return answer(urllib.request.Request(server.url + path, data=body, method="POST", headers=headers))


def test_off_loopback_the_port_is_read_only(role: Role) -> None:
    notes: list[Any] = []
    requests = {"/checkpoint": notes.append}
    with TelemetryServer("learner", 0, role.read, lambda: True, requests=requests, host="0.0.0.0") as server:
        for headers in ({}, {"Authorization": "Bearer anything"}):
            code, body = post(server, "/checkpoint", b"{}", **headers)
            assert (code, "read-only on 0.0.0.0" in body, "--token-file" in body) == (403, True, True)
        assert get(server, "/status")[0] == 200
    assert notes == []


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_what_changes_something_needs_the_token_of_the_job(role: Role, tmp_path: Path, host: str) -> None:
    notes: list[Any] = []
    requests = {"/checkpoint": notes.append}
    token_file = tmp_path / "token"
    token_file.write_text("s3cret\n")
    with TelemetryServer(
        "learner", 0, role.read, lambda: True, requests=requests, host=host, token_file=token_file
    ) as server:
        code, body = post(server, "/checkpoint", b"{}")
        assert (code, "Authorization: Bearer" in body) == (401, True)
        for wrong in ("Bearer s3cre", "Bearer s3crett", "Basic s3cret", "s3cret", "Bearer ", "Bearer \xe9"):
            code, body = post(server, "/checkpoint", b"{}", Authorization=wrong)
            assert (code, "s3cret" in body) == (401, False), wrong
        code, body = post(server, "/quit", b"{}", Authorization="Bearer s3cret")
        assert (code, "/checkpoint" in body, notes) == (404, True, [])
        for token, header, value, expected in (
            ("s3cret\n", "Authorization", "Bearer s3cret", 202),
            ("s3cret\n", "X-RLJob-Token", "s3cret", 202),  # an API server's proxy keeps the Authorization header
            ("s3cret\n", "X-RLJob-Token", "s3cre", 401),
            ("another", "Authorization", "Bearer s3cret", 401),
            ("another", "Authorization", "bearer another", 202),
            ("", "Authorization", "Bearer ", 403),
        ):
            token_file.write_text(token)
            assert post(server, "/checkpoint", b"{}", **{header: value})[0] == expected, (token, header, value)
        token_file.unlink()
        assert post(server, "/checkpoint", b"{}", Authorization="Bearer another")[0] == 403
        assert get(server, "/status")[0] == 200, "reading needs no token"
    assert notes == [{}] * 3


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.0.0.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.7", False), ("", False), ("127.0.0.1.example.org", False)],
)  # fmt: skip
def test_what_is_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback

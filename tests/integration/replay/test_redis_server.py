"""The server of a shard's pod, as its container starts it: asked whether it has its data, ended by SIGTERM, started again."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from rljob.replay import embedded_redis
from rljob.replay.redis_client import connect
from rljob.replay.redis_server import answers, main

MODULE = [sys.executable, "-m", "rljob.replay.redis_server"]
WAIT_SECONDS = 60.0


@contextmanager
def serving(folder: Path, mode: str = "Snapshot", largest_bytes: int = 0) -> Iterator[subprocess.Popen[bytes]]:
    """A server that has its data, ended at the end as a kubelet would."""
    path = folder / "s.sock"
    command = [*MODULE, "serve", str(folder), str(path), mode, str(largest_bytes)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while not answers(path):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0


def fill(client: redis.Redis, megabytes: int) -> None:
    for number in range(megabytes):
        client.set(f"key-{number}", b"x" * (1 << 20))


@pytest.mark.parametrize("mode", ["Snapshot", "AppendOnly"])
def test_data_outlives_the_server(tmp_path: Path, mode: str) -> None:
    with serving(tmp_path, mode), connect(str(tmp_path / "s.sock")) as client:
        client.set("key", "value")
    assert main(["ping", str(tmp_path / "s.sock")]) == 1
    with serving(tmp_path, mode), connect(str(tmp_path / "s.sock")) as client:
        assert client.get("key") == b"value"
        assert main(["ping", str(tmp_path / "s.sock")]) == 0


def test_it_takes_no_more_than_it_may(tmp_path: Path) -> None:
    with serving(tmp_path, largest_bytes=8 << 20), connect(str(tmp_path / "s.sock")) as client:
        with pytest.raises(redis.OutOfMemoryError):
            fill(client, 16)
        assert client.get("key-0") is not None, "nothing is thrown away for it"


def test_two_servers_never_share_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(embedded_redis, "SAVE_SECONDS", 0.1)
    with serving(tmp_path):
        assert main(["serve", str(tmp_path), str(tmp_path / "other.sock"), "Snapshot", "0"]) == 1
        assert "in use by another Redis server" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [[], ["ping"], ["serve", "a", "b", "None", "0"], ["serve", "a", "b", "Snapshot", "-1"]]
)
def test_other_words_are_answered_with_how_it_is_used(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "redis_server serve DIRECTORY SOCKET" in capsys.readouterr().err

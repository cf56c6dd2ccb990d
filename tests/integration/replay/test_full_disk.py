"""A Redis whose disk is full: what it takes, what it says at its end, and that its folder is free again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rljob.replay.embedded_redis import EmbeddedRedis
from rljob.replay.redis_client import connect

from tests.support import disks
from tests.support.durability import assert_log_equals_table, reaches
from tests.support.known import known
from tests.support.replay_peers import config, sent, serving
from tests.support.waiting import eventually


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with disks.small_disk(tmp_path / "disk", "4m") as folder:
        yield folder


def test_a_server_that_cannot_save_takes_no_writes_until_it_can(small_disk: Path) -> None:
    """A snapshot that fails in the middle of a run; the server tries again by itself, here it is asked to."""
    with (
        EmbeddedRedis(small_disk / "redis") as server,
        connect(str(server.socket)) as admin,
        serving(config(redis=str(server.socket))) as service,
    ):
        actor = sent(service, 10)
        disks.fill(small_disk / "ballast")
        admin.bgsave()
        assert "can't save to its disk" in reaches(service, "Down", actor).reason
        (small_disk / "ballast").unlink()
        admin.bgsave()
        reaches(service, "Durable", actor)
        assert_log_equals_table(service, admin)


@pytest.mark.parametrize("saved_before", [False, True])
def test_a_server_that_cannot_save_at_the_end_is_ended_and_says_what_is_lost(
    small_disk: Path, saved_before: bool
) -> None:
    server = EmbeddedRedis(small_disk / "redis").start()
    process = known(server.process)
    with connect(str(server.socket)) as client:
        client.set("early", "value")
        if saved_before:
            client.save()
        client.set("late", os.urandom(1 << 20))
    disks.fill(small_disk / "ballast")
    began = time.monotonic()
    lost = server.stop()
    assert time.monotonic() - began < 20.0
    assert process.poll() is not None
    assert "could not write its data" in lost
    assert "MiB are free" in lost
    assert ("what was saved at" if saved_before else "an empty replay") in lost
    (small_disk / "ballast").unlink()
    with EmbeddedRedis(small_disk / "redis") as again, connect(str(again.socket)) as client:
        assert client.get("early") == (b"value" if saved_before else None)
    assert again.stop() == ""


def test_an_append_only_file_that_could_not_be_written_is_told(small_disk: Path) -> None:
    server = EmbeddedRedis(small_disk / "redis", "AppendOnly").start()
    disks.fill(small_disk / "ballast")
    with connect(str(server.socket)) as client, contextlib.suppress(Exception):
        for _ in range(30):
            client.set("late", os.urandom(1 << 16))
            time.sleep(0.1)
    assert "append-only file" in server.stop()
    assert not server.alive


def test_a_server_whose_owner_was_killed_ends_even_where_it_cannot_save(small_disk: Path) -> None:
    script = f"""
import os, sys, time
from pathlib import Path
from rljob.replay.embedded_redis import EmbeddedRedis
from rljob.replay.redis_client import connect
server = EmbeddedRedis(Path({str(small_disk / "redis")!r})).start()
connect(str(server.socket)).set("late", os.urandom(1 << 20))
print(server.process.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as owner:
        pid = int(owner.stdout.readline())
        disks.fill(small_disk / "ballast")
        owner.send_signal(signal.SIGKILL)
    eventually(lambda: _gone(pid))
    (small_disk / "ballast").unlink()
    with EmbeddedRedis(small_disk / "redis") as again:
        assert again.alive, "the folder is free"


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True

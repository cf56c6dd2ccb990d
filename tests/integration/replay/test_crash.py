"""kill -9 of the service and of Redis, and a full disk: nothing acknowledged is lost, and nothing is counted twice."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rljob.replay.embedded_redis import EmbeddedRedis
from rljob.replay.redis_client import connect
from rljob_operator.local.run_folder import ProcessIdentity

from tests.support.disks import fill
from tests.support.durability import assert_log_equals_table, reaches
from tests.support.paths import ROOT
from tests.support.replay_peers import Actor, Learner, config, sent, serving
from tests.support.waiting import eventually, known


def start(directory: Path, persistence: str) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(
        [
            sys.executable,
            *("-m", "tests.support.replay_process"),
            str(directory / "redis"),
            f"ipc://{directory}/ingest",
            f"ipc://{directory}/sample",
            persistence,
        ],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    return process, json.loads(process.stdout.readline())["redis_pid"]


@pytest.mark.parametrize("persistence", ["Snapshot", "AppendOnly"])
def test_killed_service_comes_back_with_every_acknowledged_chunk(tmp_path_factory: Any, persistence: str) -> None:
    directory = tmp_path_factory.mktemp("kill")
    process, redis_pid = start(directory, persistence)
    actors = [Actor(f"ipc://{directory}/ingest", f"actor-{i}") for i in range(2)]
    try:
        for kill in range(2):
            for actor in actors:
                actor.produce(60)
            # Killed in the middle: some chunks acknowledged, some only received, some not even sent.
            actors[0].until(lambda kill=kill: actors[1].step(0.001) or actors[0].acked > 60 * kill + 20)
            process.send_signal(signal.SIGKILL)
            process.wait()
            process, redis_pid = start(directory, persistence)
            for actor in actors:
                actor.heard = time.monotonic() - 10
        for actor in actors:
            actor.until(lambda actor=actor: actor.window.unacknowledged == 0)
            assert actor.durable is True
        learner, produced = Learner(f"ipc://{directory}/sample"), sum(actor.sequence for actor in actors)
        stats = learner.stats()
        assert stats["lost_before_total"] == 0, {k: v for k, v in stats.items() if k not in ("actors", "episodes")}
        assert stats["inserted_total"] == stats["items"] == 10 * produced
        # Steps are reported twice a second or so, and what was reported since the log was last written counts as well.
        actors[0].until(lambda: actors[1].step() or learner.stats()["steps_total"] >= 10 * produced)
        assert learner.stats()["steps_total"] == 10 * produced, "no step is lost, none is counted twice"
        assert learner.stats()["raw_frames_total"] == 40 * produced
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    eventually(lambda: not Path(f"/proc/{redis_pid}").exists(), "the embedded Redis outlived its owner")


def test_killed_redis_is_refilled(server: Any) -> None:
    settings = config(redis=str(server.socket))
    with serving(settings) as service:
        actor, learner = Actor(service.ingest_endpoint), Learner(service.sample_endpoint)
        trainer = Learner(service.sample_endpoint)
        actor.send_all(20)
        assert actor.durable is True
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        actor.send_all(150)  # wraps the table, so that what Redis once had is evicted meanwhile
        assert actor.durable is False
        assert learner.stats()["durable"] is False
        trainer.subscribe()
        assert trainer.sample(16).kind == "batch", "training goes on"
        server.start()
        actor.until(lambda: learner.stats()["durable"] is True)
        actor.send_all(3)
        assert actor.durable is True
        expected = learner.stats()
    with serving(settings) as service:
        stats = Learner(service.sample_endpoint).warm_stats()
        for name in ("items", "inserted_total", "sampled_total", "chunks", "bytes"):
            assert stats[name] == expected[name], name
        assert stats["priority_total"] == pytest.approx(expected["priority_total"], rel=1e-6)
        actor.reconnect()
        resumed = Actor(service.ingest_endpoint, actor.name, actor.inc)
        resumed.until(lambda: resumed.window.connected)
        assert (resumed.welcome["seq"], resumed.welcome["slot"]) == (actor.sequence - 1, actor.welcome["slot"])


def test_second_service_takes_the_log_over(server: Any) -> None:
    first_settings, second_settings = config(redis=str(server.socket)), config(redis=str(server.socket))
    with serving(first_settings) as first:
        actor = Actor(first.ingest_endpoint)
        actor.send_all(5)
        with serving(second_settings) as second:
            learner = Learner(second.sample_endpoint)
            learner.warm_stats()
            actor.send_all(5)
            assert actor.durable is False, "what the first one takes now is not in the log"
            newcomer = Actor(second.ingest_endpoint, "actor-9")
            newcomer.send_all(5)
            assert newcomer.durable is True
            assert learner.stats()["items"] == 100


@pytest.mark.parametrize("damage", [b"", b"these are not the parts of a message", None])
def test_a_log_of_damaged_chunks_is_left_out(server: Any, damage: bytes | None) -> None:
    settings = config(redis=str(server.socket))
    with serving(settings) as service:
        actor = sent(service, 10)
        assert actor.durable is True
    with connect(str(server.socket)) as client:
        for key in client.keys("run:test:shard:0:chunk:*"):
            client.delete(key) if damage is None else client.set(key, damage)
    with serving(settings) as service:
        actor.endpoint = service.ingest_endpoint
        actor.reconnect()
        actor.send_all(3)
        assert actor.durable is True
        stats = Learner(service.sample_endpoint).stats()
        assert (stats["chunks"], stats["items"], stats["inserted_total"]) == (3, 30, 130)


def test_a_server_that_cannot_save_takes_no_writes_until_it_can(small_disk: Path) -> None:
    """A snapshot that fails in the middle of a run; the server tries again by itself, here it is asked to."""
    with (
        EmbeddedRedis(small_disk / "redis") as server,
        connect(str(server.socket)) as admin,
        serving(config(redis=str(server.socket))) as service,
    ):
        actor = sent(service, 10)
        fill(small_disk / "ballast")
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
    fill(small_disk / "ballast")
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
    fill(small_disk / "ballast")
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
        fill(small_disk / "ballast")
        owner.send_signal(signal.SIGKILL)
    eventually(lambda: ProcessIdentity.of(pid) is None)
    (small_disk / "ballast").unlink()
    with EmbeddedRedis(small_disk / "redis") as again:
        assert again.alive, "the folder is free"

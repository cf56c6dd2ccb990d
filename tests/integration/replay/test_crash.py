"""kill -9 of the service and of Redis: nothing acknowledged is lost, nothing is counted twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from rljob.replay.redis_client import connect

pytestmark = pytest.mark.timeout(240)


def start(directory: Path, persistence: str) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(
        [
            sys.executable,
            str(Path(__file__).with_name("service_process.py")),
            str(directory / "redis"),
            f"ipc://{directory}/ingest",
            f"ipc://{directory}/sample",
            persistence,
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    return process, json.loads(line)["redis_pid"]


@pytest.mark.parametrize("persistence", ["Snapshot", "AppendOnly"])
def test_killed_service_comes_back_with_every_acknowledged_chunk(
    kit: Any, tmp_path_factory: Any, persistence: str
) -> None:
    directory = tmp_path_factory.mktemp("kill")
    process, redis_pid = start(directory, persistence)
    actors = [kit.Actor(f"ipc://{directory}/ingest", f"actor-{i}") for i in range(2)]
    try:
        for kill in range(3):
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
        stats = kit.Learner(f"ipc://{directory}/sample").stats()
        produced = sum(actor.sequence for actor in actors)
        assert stats["lost_before_total"] == 0, {k: v for k, v in stats.items() if k not in ("actors", "episodes")}
        assert stats["inserted_total"] == stats["items"] == 10 * produced
        assert stats["lost_before_total"] == 0
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    deadline = time.monotonic() + 60
    while Path(f"/proc/{redis_pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{redis_pid}").exists(), "the embedded Redis outlived its owner"


def test_killed_redis_is_refilled(kit: Any, server: Any) -> None:
    settings = kit.config(redis=str(server.socket))
    with kit.running(settings) as service:
        actor, learner = kit.Actor(service.ingest_endpoint), kit.Learner(service.sample_endpoint)
        trainer = kit.Learner(service.sample_endpoint)
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
    with kit.running(settings) as service:
        learner = kit.Learner(service.sample_endpoint)
        deadline = time.monotonic() + 60
        while (stats := learner.stats())["state"] == "warming":
            assert time.monotonic() < deadline
        for name in ("items", "inserted_total", "sampled_total", "chunks", "bytes"):
            assert stats[name] == expected[name], name
        assert stats["priority_total"] == pytest.approx(expected["priority_total"], rel=1e-6)
        actor.reconnect()
        resumed = kit.Actor(service.ingest_endpoint, actor.name, actor.inc)
        resumed.until(lambda: resumed.window.connected)
        assert resumed.welcome["seq"] == actor.sequence - 1
        assert resumed.welcome["slot"] == actor.welcome["slot"]


def test_second_service_takes_the_log_over(kit: Any, server: Any) -> None:
    first_settings, second_settings = kit.config(redis=str(server.socket)), kit.config(redis=str(server.socket))
    with kit.running(first_settings) as first:
        actor = kit.Actor(first.ingest_endpoint)
        actor.send_all(5)
        with kit.running(second_settings) as second:
            learner = kit.Learner(second.sample_endpoint)
            deadline = time.monotonic() + 60
            while learner.stats()["state"] == "warming":
                assert time.monotonic() < deadline
            actor.send_all(5)
            assert actor.durable is False, "what the first one takes now is not in the log"
            newcomer = kit.Actor(second.ingest_endpoint, "actor-9")
            newcomer.send_all(5)
            assert newcomer.durable is True
            assert learner.stats()["items"] == 100


def test_redis_absent_at_start(kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rljob.replay.service._REDIS_PATIENCE_SECONDS", 0.3)
    with kit.running(kit.config(redis=str(tmp_path / "nobody.sock"))) as service:
        actor = kit.Actor(service.ingest_endpoint)
        actor.send_all(10)
        assert actor.durable is False
        assert threading.active_count() < 50


@pytest.mark.parametrize("damage", [b"", b"these are not the parts of a message", None])
def test_a_log_of_damaged_chunks_is_left_out(kit: Any, server: Any, damage: bytes | None) -> None:
    settings = kit.config(redis=str(server.socket))
    with kit.running(settings) as service:
        actor = kit.Actor(service.ingest_endpoint)
        actor.send_all(10)
        assert actor.durable is True
    with connect(str(server.socket)) as client:
        for key in client.keys("run:test:shard:0:chunk:*"):
            client.delete(key) if damage is None else client.set(key, damage)
    with kit.running(settings) as service:
        actor.endpoint = service.ingest_endpoint
        actor.reconnect()
        actor.send_all(3)
        assert actor.durable is True
        stats = kit.Learner(service.sample_endpoint).stats()
        assert (stats["chunks"], stats["items"], stats["inserted_total"]) == (3, 30, 130)

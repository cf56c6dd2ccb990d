"""Actors with central inference as real processes, against a server that is killed, comes back, or never does."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rljob.api import RLJob, dump_manifest, parse_job

from tests.integration.actor.test_actor import Surroundings, a_job, acting, assert_conserved, surroundings
from tests.support.paths import ROOT
from tests.support.role_commands import worker_command
from tests.support.waiting import eventually


def central(replicas: int = 1, timeout_seconds: int = 30, envs: int = 4) -> RLJob:
    document = a_job("CartPole-v1", envs=envs).model_dump(mode="json", by_alias=True, exclude_unset=True)
    document["spec"]["actors"]["inference"] = "Central"
    document["spec"]["inference"] = {"replicas": replicas, "timeoutSeconds": timeout_seconds}
    return parse_job(document)


class Process:
    """A role as a real process of this machine; killed at the end of its block, if it is still there."""

    def __init__(self, around: Surroundings, role: str, name: str) -> None:
        options, run_dir = around.options, around.options.run_dir
        self.announced = run_dir / "roles" / f"{name}.json"
        self.announced.unlink(missing_ok=True)
        (run_dir / "job.yaml").write_text(dump_manifest(around.job))
        if role == "actor":
            addresses = {"replay_ingest": options.replay_ingest[0]}
        else:
            addresses = {"weights": options.weights, "notice": options.notice}
        addresses["inference"] = options.inference[0]
        given = {"job": run_dir / "job.yaml", "run_dir": run_dir, "name": name, "announce": self.announced}
        command = worker_command(role, **given, **addresses)
        self.log = (run_dir / f"{name}.log").open("a+")
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, cwd=ROOT, stderr=self.log, env=environment)

    def status(self) -> dict[str, Any]:
        eventually(self.announced.exists)
        url = json.loads(self.announced.read_text())["metrics_url"]
        with urllib.request.urlopen(f"{url}/status", timeout=60) as answer:
            return json.load(answer)

    def metrics(self) -> str:
        url = json.loads(self.announced.read_text())["metrics_url"]
        with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
            return answer.read().decode()

    def words(self) -> str:
        self.log.seek(0)
        return self.log.read()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        self.log.close()


@contextlib.contextmanager
def processes(around: Surroundings) -> Iterator[Any]:
    started: list[Process] = []

    def start(role: str, name: str) -> Process:
        started.append(Process(around, role, name))
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            process.end()


@contextlib.contextmanager
def central_surroundings(job: RLJob, run_dir: Path) -> Iterator[Surroundings]:
    with surroundings(job, run_dir, scheme="ipc") as around:
        around.options = replace(
            around.options, inference=(f"ipc://{run_dir}/inference",), weights=around.weights.weights
        )
        yield around


@pytest.mark.timeout(180)
def test_a_killed_server_holds_the_actor_up_until_it_is_back(tmp_path: Path) -> None:
    with central_surroundings(central(), tmp_path) as around, processes(around) as start:
        around.publish(1)
        server, actor = start("inference", "inference-0"), start("actor", "actor-0")
        eventually(lambda: around.service.status.inserted_total > 300)
        eventually(lambda: actor.status()["policy_version"] == 1)
        told = server.status()
        assert (told["role"], told["state"], told["policy_version"]) == ("inference", "Serving", 1)
        assert 0 < told["latency_p50_seconds"] <= told["latency_p99_seconds"]
        assert told["requests_total"] > 0
        assert "rljob_inference_requests_total{" in server.metrics()

        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait(60)
        eventually(lambda: actor.status()["state"] == "Blocked")
        before = actor.status()
        eventually(lambda: actor.status()["blocked_seconds"] > before["blocked_seconds"] + 2)
        waiting = actor.status()
        assert waiting["inference_wait_seconds"] > before["inference_wait_seconds"] + 1
        # Others see it too, from the heartbeats that go on meanwhile; and nothing is made up while no server answers.
        eventually(lambda: around.service.status.actors[0].state == "Blocked")
        assert waiting["steps"] == before["steps"]

        around.publish(2)
        start("inference", "inference-0")
        eventually(lambda: actor.status()["steps"] > waiting["steps"] + 300)
        after = actor.status()
        assert after["state"] == "Running"
        assert after["policy_version"] == 2
        assert after["inference_resent"] >= 1
        assert "the inference server answers again" in actor.words()

        actor.process.send_signal(signal.SIGTERM)
        assert actor.process.wait(60) == 143
        assert_conserved(around)


@pytest.mark.timeout(300)
def test_an_actor_waits_for_the_first_answer_and_gives_up_on_a_server_that_never_comes_back(tmp_path: Path) -> None:
    with central_surroundings(central(timeout_seconds=10), tmp_path) as around, processes(around) as start:
        around.publish(1)
        actor = start("actor", "actor-0")
        eventually(lambda: actor.status()["inference_wait_seconds"] > 11, "it gave up, or did not begin", 150.0)
        server = start("inference", "inference-0")
        eventually(lambda: around.service.status.inserted_total > 300)
        os.kill(server.process.pid, signal.SIGKILL)
        assert actor.process.wait(60) == 1, "a failure that a new start may mend"
        last = actor.words().strip().splitlines()[-1]
        assert f"no answer from the inference server {around.options.inference[0]} for 10 s" in last
        assert "spec.inference.timeoutSeconds" in last
        # What it had played was sent first.
        assert around.service.status.rejected_total == {}
        assert around.shard.inserted > 300


@pytest.mark.parametrize("envs", [1, 3])
def test_a_number_of_environments_that_makes_no_two_groups(envs: int, tmp_path: Path) -> None:
    with central_surroundings(central(envs=envs), tmp_path) as around, processes(around) as start:
        around.publish(1)
        start("inference", "inference-0")
        with acting(around.options):
            eventually(lambda: around.service.status.inserted_total > 100)
        assert_conserved(around)

"""Actors with central inference as real processes, against a server that is killed, comes back, or never does."""

import contextlib
import json
import signal
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rljob.api import RLJob, dump_manifest, parse_job

from tests.integration.actor.test_actor import Surroundings, a_job, acting, assert_conserved, surroundings
from tests.support.forked_roles import ForkedRole
from tests.support.waiting import eventually


def central(replicas: int = 1, envs: int = 4) -> RLJob:
    document = a_job("CartPole-v1", envs=envs).model_dump(mode="json", by_alias=True, exclude_unset=True)
    document["spec"]["actors"]["inference"] = "Central"
    document["spec"]["inference"] = {"replicas": replicas}
    return parse_job(document)


class Process(ForkedRole):
    """A role as a real process of this machine."""

    def __init__(self, around: Surroundings, role: str, name: str) -> None:
        options, run_dir = around.options, around.options.run_dir
        self.announced, self.log = run_dir / "roles" / f"{name}.json", run_dir / f"{name}.log"
        self.announced.unlink(missing_ok=True)
        job = run_dir / "job.yaml"
        job.write_text(dump_manifest(around.job))
        if role == "actor":
            addresses = {"replay_ingest": options.replay_ingest[0]}
        else:
            addresses = {"weights": options.weights, "notice": options.notice}
        given: dict[str, Any] = {"job": job, "run_dir": run_dir, "name": name, "announce": self.announced, **addresses}
        super().__init__(role, self.log, {"OMP_NUM_THREADS": "1"}, inference=options.inference[0], **given)

    def page(self, name: str) -> str:
        eventually(self.announced.exists)
        url = json.loads(self.announced.read_text())["metrics_url"]
        with urllib.request.urlopen(f"{url}/{name}", timeout=60) as answer:
            return answer.read().decode()

    def status(self) -> dict[str, Any]:
        return json.loads(self.page("status"))


@contextlib.contextmanager
def processes(around: Surroundings) -> Iterator[Callable[[str, str], Process]]:
    """Starts a role; what still runs at the end is killed."""
    with contextlib.ExitStack() as started:

        def start(role: str, name: str) -> Process:
            process = Process(around, role, name)
            started.callback(process.close)
            return process

        yield start


@contextlib.contextmanager
def central_surroundings(job: RLJob, run_dir: Path) -> Iterator[Surroundings]:
    with surroundings(job, run_dir, scheme="ipc") as around:
        around.options = replace(
            around.options, inference=(f"ipc://{run_dir}/inference",), weights=around.weights.weights
        )
        yield around


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
        assert "rljob_inference_requests_total{" in server.page("metrics")

        server.close()
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
        assert (after["state"], after["policy_version"]) == ("Running", 2)
        assert "the inference server answers again" in actor.log.read_text()

        actor.send_signal(signal.SIGTERM)
        assert actor.wait() == 143
        assert_conserved(around)


def test_an_actor_waits_for_the_first_answer_and_gives_up_on_a_server_that_never_comes_back(tmp_path: Path) -> None:
    with central_surroundings(central(), tmp_path) as around, processes(around) as start:
        around.publish(1)
        actor = start("actor", "actor-0")
        eventually(lambda: actor.status()["inference_wait_seconds"] > 6, "it gave up, or did not begin", 150.0)
        server = start("inference", "inference-0")
        eventually(lambda: around.service.status.inserted_total > 300)
        server.close()
        assert actor.wait() == 1, "a failure that a new start may mend"
        last = actor.log.read_text().strip().splitlines()[-1]
        assert f"no answer from the inference server {around.options.inference[0]} for 30 s" in last
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

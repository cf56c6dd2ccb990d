"""A whole actor against the real replay service and the real weight server, over every kind of end.

Actors with central inference as real processes, against a server that is killed, comes back, or never does.
"""

import contextlib
import json
import os
import signal
import threading
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rljob.algorithms.registry import algorithm
from rljob.api import RLJob
from rljob.envs import EnvironmentSpec, describe_environment
from rljob.replay.config import config_of
from rljob.replay.limiter import LimiterConfig
from rljob.replay.service import ReplayService
from rljob.roles.actor import run_actor
from rljob.roles.options import RoleOptions
from rljob.weights.server import WeightServer

from tests.support.jobs import job_of
from tests.support.paths import PLUGINS
from tests.support.replay_peers import Shard
from tests.support.roles import Roles
from tests.support.waiting import eventually, running


def a_job(environment: str = "CartPole-v1", envs: int = 4, actors: Any = (), **more: Any) -> RLJob:
    """``more`` of its environment, and ``actors``, of that section."""
    spec = {
        "algorithm": {"type": "ApeXDQN", "precision": "FP32"},
        "environment": {"id": environment, **more},
        "replay": {"capacity": 100_000},
        "actors": {"replicas": 2, "envsPerActor": envs, **dict(actors)},
    }
    return job_of(spec, "actor-test")


@dataclass
class Surroundings:
    """A replay shard, a weight server, and the options an actor needs to reach them."""

    job: RLJob
    spec: EnvironmentSpec
    options: RoleOptions
    weights: WeightServer
    shard: Shard

    @property
    def service(self) -> ReplayService:
        """The present one."""
        return self.shard.service

    def publish(self, version: int, epoch: int = 1) -> None:
        parameters, environment_parameters = self.job.spec.algorithm.parameters, self.job.spec.environment.parameters
        network = algorithm("ApeXDQN").build(self.spec, parameters, environment_parameters)
        self.weights.publish(network, version, epoch, {})

    def final(self) -> dict[str, Any]:
        return json.loads((self.options.run_dir / "roles" / f"{self.options.name}.final.json").read_text())


@contextlib.contextmanager
def surroundings(job: RLJob, run_dir: Path, *, scheme: str = "inproc", generous: bool = True) -> Iterator[Surroundings]:
    base = f"inproc://{uuid.uuid4().hex}-" if scheme == "inproc" else f"ipc://{run_dir}/"
    environment = job.spec.environment
    spec = describe_environment(environment.id, environment.parameters)
    config = config_of(
        job,
        shard=0,
        ingest=base + "ingest",
        sample=base + "sample",
        redis=None,
        environment=spec,
    )
    # No learner samples here: a generous limiter never holds inserts back, a strict one does so soon.
    buffer = 1e9 if generous else 4096
    config = replace(config, limiter=LimiterConfig(8.0, 400, buffer, insert_step=config.layout.length, sample_step=512))
    weights = WeightServer(base + "weights", base + "notice")
    options = RoleOptions(
        job=job,
        run_dir=run_dir,
        name="actor-0",
        replay_ingest=(base + "ingest",),
        weights=base + "weights",
        notice=base + "notice",
        announce=run_dir / "roles" / "actor-0.json",
    )
    around = Surroundings(job, spec, options, weights, Shard(config))
    around.shard.start()
    try:
        yield around
    finally:
        around.shard.end()
        weights.close()


def acting(options: RoleOptions) -> AbstractContextManager[threading.Event]:
    """The actor on a thread."""
    return running(lambda stop: run_actor(options, stop))


def assert_conserved(around: Surroundings) -> None:
    final = around.final()
    assert final["produced"] == final["acknowledged"] + final["unacknowledged"]
    assert (final["steps"], final["unacknowledged"]) == (final["produced"] + final["cut_steps"], 0)
    assert around.shard.inserted == final["produced"]
    assert not around.service.status.rejected_total


@pytest.mark.parametrize("environment", ["CartPole-v1", "ALE/Pong-v5", f"{PLUGINS / 'torch_cartpole.py'}:make"])
def test_plays_reports_takes_weights_and_leaves_nothing_behind(environment: str, tmp_path: Path) -> None:
    parameters = {"maxEpisodeRawFrames": 1000} if environment.startswith("ALE") else {}
    with surroundings(a_job(environment, **parameters), tmp_path) as around:
        status = lambda: around.service.status  # noqa: E731
        with acting(around.options):
            eventually(lambda: status().inserted_total > 500)
            around.publish(1)
            eventually(lambda: status().actors and status().actors[0].policy_version == 1)
            inserted = status().inserted_total
            eventually(lambda: status().inserted_total > inserted + 800 and status().episodes_total > 2)
            (actor,) = status().actors
            assert actor.name == "actor-0"
            assert actor.steps_per_second > 0
            assert set(actor.stages) == {"env", "infer", "encode", "send", "blocked"}
            # Actors act at random, and say priority 1, until there are weights; then priorities are TD errors.
            table = around.service.table
            stored = [table.chunk(ordinal).raw.column("prio") for ordinal in range(table.oldest, table.head)]
            priorities = np.concatenate(stored)
            assert (priorities == 1.0).any()
            assert (priorities != 1.0).any()
        announced = json.loads((tmp_path / "roles" / "actor-0.json").read_text())
        assert (announced["role"], announced["pid"]) == ("actor", os.getpid())
        assert_conserved(around)


def test_an_actor_that_waits_for_credit_still_leaves(tmp_path: Path) -> None:
    with surroundings(a_job("CartPole-v1"), tmp_path, generous=False) as around:
        with acting(around.options) as stop:
            eventually(lambda: any(actor.state == "Blocked" for actor in around.service.status.actors))
            around.publish(1)
            eventually(lambda: around.service.status.actors[0].policy_version == 1)
            eventually(lambda: around.service.status.actors[0].blocked_seconds > 1)
            url = json.loads((tmp_path / "roles" / "actor-0.json").read_text())["metrics_url"]
            with urllib.request.urlopen(f"{url}/readyz", timeout=60) as answer:
                assert answer.status == 200, "an actor that is held back is no broken one"
            stop.set()
        final = around.final()
        assert final["produced"] == final["acknowledged"] + final["unacknowledged"]
        assert final["unacknowledged"] > 0
        assert around.shard.inserted == final["acknowledged"]


def test_stop_before_any_service_answers(tmp_path: Path) -> None:
    with (
        surroundings(a_job("CartPole-v1"), tmp_path) as around,
        acting(replace(around.options, replay_ingest=("inproc://nobody-is-here",))),
    ):
        eventually(lambda: (tmp_path / "roles" / "actor-0.json").exists())


def test_the_same_seeds_in_the_next_run_and_in_the_next_life_others_and_the_same_slot(tmp_path: Path) -> None:
    """This holds for what is made of ``seed=``, and for what is drawn from the process's generators while a copy is made."""

    slots = []

    def seen(run: str, lives: int) -> list[list[str]]:
        of_lives = []
        (tmp_path / run).mkdir()
        job = a_job("tests.support.odd_environments:Drawing", kwargs={"write_to": str(tmp_path / run)})
        with surroundings(job, tmp_path / run) as around:
            for _ in range(lives):
                with acting(around.options):
                    eventually(lambda: len(list((tmp_path / run).glob("*.drawn"))) >= 4)
                    inserted = around.service.status.inserted_total
                    eventually(lambda least=inserted: around.service.status.inserted_total > least)
                alive = [actor for actor in around.service.status.actors if actor.state in ("Running", "Connecting")]
                slots.append((alive[-1].slot, alive[-1].incarnation))
                of_lives.append(sorted(file.read_text() for file in (tmp_path / run).glob("*.drawn")))
                for file in (tmp_path / run).glob("*.drawn"):
                    file.unlink()
        return of_lives

    first, second = seen("one", 2)
    assert [first] == seen("other", 1)
    assert not set(first) & set(second)
    assert slots[0][0] == slots[1][0]
    assert slots[0][1] != slots[1][1]


def test_sigterm_ends_a_real_process(tmp_path: Path) -> None:
    with with_processes(a_job("CartPole-v1"), tmp_path) as (around, processes, start):
        start("actor")
        eventually(lambda: around.service.status.inserted_total > 300)
        assert processes.end("actor-0") == 143
        assert_conserved(around)


def central(envs: int = 4) -> RLJob:
    return a_job(envs=envs, actors={"inference": "Central"})


@contextlib.contextmanager
def with_processes(job: RLJob, run_dir: Path) -> Iterator[tuple[Surroundings, Roles, Callable[[str], None]]]:
    """And processes of roles that meet there, and how one is started."""
    with surroundings(job, run_dir, scheme="ipc") as around, closing(Roles(run_dir, job)) as processes:
        options = around.options = replace(around.options, inference=(f"ipc://{run_dir}/inference",))
        meeting = {"replay_ingest": options.replay_ingest[0], "inference": options.inference[0]}
        meeting |= {"weights": options.weights, "notice": options.notice}
        yield around, processes, lambda role: processes.start(role, f"{role}-0", **meeting)


def test_a_killed_server_holds_the_actor_up_until_it_is_back(tmp_path: Path) -> None:
    with with_processes(central(), tmp_path) as (around, processes, start):
        around.publish(1)
        start("inference"), start("actor")
        eventually(lambda: around.service.status.inserted_total > 300)
        processes.until("actor-0", lambda actor: actor["policy_version"] == 1)
        told = processes.status("inference-0")
        assert (told["role"], told["state"], told["policy_version"]) == ("inference", "Serving", 1)
        assert 0 < told["latency_p50_seconds"] <= told["latency_p99_seconds"]
        assert told["requests_total"] > 0
        assert "rljob_inference_requests_total{" in processes.page("inference-0", "metrics")

        processes.end("inference-0", signal.SIGKILL)
        before = processes.until("actor-0", lambda actor: actor["state"] == "Blocked")
        waiting = processes.until("actor-0", lambda actor: actor["blocked_seconds"] > before["blocked_seconds"] + 2)
        assert waiting["inference_wait_seconds"] > before["inference_wait_seconds"] + 1
        # Others see it too, from the heartbeats that go on meanwhile; and nothing is made up while no server answers.
        eventually(lambda: around.service.status.actors[0].state == "Blocked")
        assert waiting["steps"] == before["steps"]

        around.publish(2)
        start("inference")
        after = processes.until("actor-0", lambda actor: actor["steps"] > waiting["steps"] + 300)
        assert (after["state"], after["policy_version"]) == ("Running", 2)
        assert "the inference server answers again" in (tmp_path / "actor-0.log").read_text()
        assert processes.end("actor-0") == 143
        assert_conserved(around)


def test_an_actor_waits_for_the_first_answer_and_gives_up_on_a_server_that_never_comes_back(tmp_path: Path) -> None:
    with with_processes(central(), tmp_path) as (around, processes, start):
        around.publish(1)
        start("actor")
        processes.until("actor-0", lambda actor: actor["inference_wait_seconds"] > 6, 150.0)
        start("inference")
        eventually(lambda: around.service.status.inserted_total > 300)
        processes.end("inference-0", signal.SIGKILL)
        assert processes.processes["actor-0"].wait() == 1, "a failure that a new start may mend"
        last = (tmp_path / "actor-0.log").read_text().strip().splitlines()[-1]
        assert f"no answer from the inference server {around.options.inference[0]} for 30 s" in last
        # What it had played was sent first.
        assert around.service.status.rejected_total == {}
        assert around.shard.inserted > 300


@pytest.mark.parametrize("envs", [1, 3])
def test_a_number_of_environments_that_makes_no_two_groups(envs: int, tmp_path: Path) -> None:
    with with_processes(central(envs=envs), tmp_path) as (around, _, start):
        around.publish(1)
        start("inference")
        with acting(around.options):
            eventually(lambda: around.service.status.inserted_total > 100)
        assert_conserved(around)

"""A whole actor against the real replay service and the real weight server, over every kind of end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rljob.actor.shards import MultiShard
from rljob.actor.worker import environment_seed, run_actor
from rljob.algorithms import algorithm
from rljob.api import RLJob, dump_manifest, parse_job
from rljob.cli.options import RoleOptions
from rljob.envs import EnvironmentSpec, describe_environment
from rljob.experience import ChunkLayout
from rljob.learner.weights import WeightServer
from rljob.replay.config import ReplayConfig, config_of
from rljob.replay.limiter import LimiterConfig
from rljob.replay.service import ReplayService

ROOT = Path(__file__).parents[3]


def a_job(environment: str, *, envs: int = 4, parameters: dict[str, Any] | None = None) -> RLJob:
    return parse_job(
        {
            "apiVersion": "rljob.dev/v1alpha1",
            "kind": "RLJob",
            "metadata": {"name": "actor-test"},
            "spec": {
                "algorithm": {"type": "ApeXDQN", "apeXDQN": {"precision": "FP32"}},
                "environment": {"id": environment, **(parameters or {})},
                "replay": {"capacity": 100_000},
                "actors": {"replicas": 2, "envsPerActor": envs},
            },
        }
    )


@dataclass
class Surroundings:
    """A replay shard, a weight server, and the options an actor needs to reach them."""

    job: RLJob
    spec: EnvironmentSpec
    config: ReplayConfig
    options: RoleOptions
    weights: WeightServer
    service: ReplayService
    stop_service: threading.Event
    service_thread: threading.Thread

    @property
    def inserted(self) -> int:
        """Transitions stored by the present service; its status document may be a moment older."""
        return self.service.table.limiter.inserted

    def serve(self) -> None:
        self.service = ReplayService(self.config)
        self.stop_service = threading.Event()
        self.service_thread = threading.Thread(target=self.service.run, args=(self.stop_service,), daemon=True)
        self.service_thread.start()

    def end_service(self) -> None:
        self.stop_service.set()
        self.service_thread.join(60)

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
        frame_shape=spec.frame_shape,
        frame_dtype=spec.frame_dtype,
        stack=spec.stack,
    )
    # Nobody samples here: a generous limiter never holds inserts back, a strict one does so soon.
    buffer = 1e9 if generous else 4096
    limiter = LimiterConfig(8.0, 400, buffer, insert_step=config.layout.length, sample_step=512)
    config = replace(config, limiter=limiter)
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
    never = threading.Event()
    around = Surroundings(job, spec, config, options, weights, None, never, None)  # type: ignore[arg-type]
    around.serve()
    try:
        yield around
    finally:
        around.end_service()
        weights.close()


@contextlib.contextmanager
def actor_thread(options: RoleOptions) -> Iterator[threading.Event]:
    stop, failures = threading.Event(), []

    def play() -> None:
        try:
            run_actor(options, stop)
        except BaseException as error:  # noqa: BLE001 (told to the test's own thread)
            failures.append(error)

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()
        assert not failures, failures


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def assert_conserved(around: Surroundings) -> None:
    final = around.final()
    assert final["produced"] == final["acknowledged"] + final["unacknowledged"]
    assert final["steps"] == final["produced"] + final["cut_steps"]
    assert final["unacknowledged"] == 0
    assert around.inserted == final["produced"]
    assert not around.service.status["rejected_total"]


@pytest.mark.parametrize("environment", ["CartPole-v1", "ALE/Pong-v5"])
def test_plays_reports_takes_weights_and_leaves_nothing_behind(environment: str, tmp_path: Path) -> None:
    parameters = {"maxEpisodeRawFrames": 1000} if environment.startswith("ALE") else {}
    with surroundings(a_job(environment, parameters=parameters), tmp_path) as around:
        status = lambda: around.service.status  # noqa: E731
        with actor_thread(around.options):
            until(lambda: status().get("inserted_total", 0) > 500)
            around.publish(1)
            until(lambda: status()["actors"] and status()["actors"][0]["policy_version"] == 1)
            inserted = status()["inserted_total"]
            until(lambda: status()["inserted_total"] > inserted + 800 and status()["episodes_total"] > 2)
            (actor,) = status()["actors"]
            assert actor["name"] == "actor-0"
            assert actor["steps_per_second"] > 0
            assert set(actor["stages"]) == {"env", "infer", "encode", "send", "blocked"}
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
        with actor_thread(around.options) as stop:
            until(lambda: any(actor["state"] == "Blocked" for actor in around.service.status["actors"]))
            around.publish(1)
            until(lambda: around.service.status["actors"][0]["policy_version"] == 1)
            until(lambda: around.service.status["actors"][0]["blocked_seconds"] > 1)
            url = json.loads((tmp_path / "roles" / "actor-0.json").read_text())["metrics_url"]
            with urllib.request.urlopen(f"{url}/readyz", timeout=60) as answer:
                assert answer.status == 200, "an actor that is held back is no broken one"
            stop.set()
        final = around.final()
        assert final["produced"] == final["acknowledged"] + final["unacknowledged"]
        assert final["unacknowledged"] > 0
        assert around.inserted == final["acknowledged"]


def test_a_blocked_actor_sleeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It wakes four times a second to see whether it shall stop, and for each word of the service: a heartbeat's answer."""
    polls = 0
    poll = MultiShard.poll

    def counted(sink: MultiShard, timeout_seconds: float = 0.0) -> None:
        nonlocal polls
        polls += 1
        poll(sink, timeout_seconds)

    with (
        surroundings(a_job("CartPole-v1"), tmp_path, generous=False) as around,
        actor_thread(around.options),
    ):
        until(lambda: any(actor["state"] == "Blocked" for actor in around.service.status["actors"]))
        monkeypatch.setattr(MultiShard, "poll", counted)
        time.sleep(4)
        assert 4 <= polls <= 4 * 8
        monkeypatch.undo()


def test_goes_on_after_a_restart_of_the_service(tmp_path: Path) -> None:
    with surroundings(a_job("CartPole-v1"), tmp_path, scheme="ipc") as around:
        with actor_thread(around.options):
            until(lambda: around.service.status["inserted_total"] > 500)
            around.end_service()
            first = around.inserted
            around.serve()
            until(lambda: around.service.status["inserted_total"] > 500)
        final = around.final()
        second = around.inserted
        assert final["unacknowledged"] == 0
        # Without a log, a chunk accepted but not yet acknowledged when the service ended is stored once more: at most a
        # window of credits.
        assert 0 <= first + second - final["produced"] <= around.config.credits * around.config.layout.length


def test_two_lives_share_a_slot_but_nothing_else(tmp_path: Path) -> None:
    with surroundings(a_job("CartPole-v1"), tmp_path) as around:
        seen = []
        for _ in range(2):
            with actor_thread(around.options):
                inserted = around.service.status["inserted_total"]
                until(lambda inserted=inserted: around.service.status["inserted_total"] > inserted + 200)
                alive = [a for a in around.service.status["actors"] if a["state"] in ("Running", "Connecting")]
                seen.append((alive[-1]["slot"], alive[-1]["incarnation"]))
        assert seen[0][0] == seen[1][0]
        assert seen[0][1] != seen[1][1]


def test_stop_before_any_service_answers(tmp_path: Path) -> None:
    with surroundings(a_job("CartPole-v1"), tmp_path) as around:
        lonely = replace(around.options, replay_ingest=("inproc://nobody-is-here",))
        with actor_thread(lonely):
            until(lambda: (tmp_path / "roles" / "actor-0.json").exists())


def test_environment_seeds() -> None:
    seeds = {environment_seed(1, slot, inc) for slot in range(50) for inc in ("a", "b")}
    assert len(seeds) == 100
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert environment_seed(1, 2, "a") == environment_seed(1, 2, "a") != environment_seed(2, 2, "a")


def test_sigterm_ends_a_real_process(tmp_path: Path) -> None:
    with surroundings(a_job("CartPole-v1"), tmp_path, scheme="ipc") as around:
        (tmp_path / "job.yaml").write_text(dump_manifest(around.job))
        options = around.options
        arguments = ["--job", tmp_path / "job.yaml", "--run-dir", tmp_path, "--name", "actor-0"]
        arguments += ["--replay-ingest", options.replay_ingest[0], "--weights", options.weights]
        arguments += ["--notice", options.notice, "--announce", options.announce, "--metrics-port", "0"]
        command = [sys.executable, "-m", "rljob.cli", "worker", "actor", *map(str, arguments)]
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
            try:
                until(lambda: around.service.status["inserted_total"] > 300 or process.poll() is not None, 60)
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0, process.stderr.read() if process.stderr else ""
            finally:
                process.kill()
        assert_conserved(around)


def test_layout_of_actor_and_service_agree() -> None:
    job = a_job("CartPole-v1")
    algorithm_parameters = job.spec.algorithm.parameters
    layout = ChunkLayout(algorithm_parameters.chunk_length, (4,), np.dtype("f4"), 1, algorithm_parameters.n_step)
    spec = describe_environment("CartPole-v1", job.spec.environment.parameters)
    arguments = {"frame_shape": spec.frame_shape, "frame_dtype": spec.frame_dtype, "stack": spec.stack}
    config = config_of(job, shard=0, ingest="inproc://a", sample="inproc://b", redis=None, **arguments)
    assert config.layout == layout

"""The learner with real neighbours in one process: a replay service, a producer of real chunks, or the actor role itself."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rljob.actor.worker import run_actor
from rljob.api import RLJob, parse_job
from rljob.cli.options import RoleOptions
from rljob.envs import make_single_environment
from rljob.learner import checkpoint
from rljob.learner.policy import load_policy
from rljob.learner.weights import WeightClient
from rljob.learner.worker import run_learner
from rljob.replay.worker import run_replay
from rljob.telemetry.recorder import read_records


def cartpole(sampling: str = "Index", **parameters: object) -> RLJob:
    values = {"preset": "CartPole", "precision": "FP32", "publishInterval": 10, **parameters}
    return parse_job(
        {
            "apiVersion": "rljob.dev/v1alpha1",
            "kind": "RLJob",
            "metadata": {"name": "cartpole"},
            "spec": {
                "algorithm": {
                    "name": "ApeXDQN",
                    "parameters": [{"name": name, "value": str(value)} for name, value in values.items()],
                },
                "environment": {"id": "CartPole-v1", "parameters": [{"name": "rewardClipping", "value": "false"}]},
                "replay": {
                    "capacity": 50_000,
                    "sampling": sampling,
                    "prioritization": {"exponent": "0.5", "importance": "0.4"},
                    "rateLimiter": {"samplesPerInsert": "8", "minSize": 500, "errorBuffer": "4000"},
                },
                "actors": {"replicas": 1, "envsPerActor": 8},
                "checkpoint": {"intervalSeconds": 1, "retain": 2},
            },
        }
    )


class Run:
    """Roles of one job as threads; each can be stopped and started again by itself."""

    def __init__(self, job: RLJob, run_dir: Path) -> None:
        # ipc, not inproc: an inproc connection does not come back when the other end is closed and bound again
        self._sockets = tempfile.TemporaryDirectory(prefix="rljob-")
        self.job, self.run_dir = job, run_dir
        self._endpoints = {
            kind: f"ipc://{self._sockets.name}/{kind}" for kind in ("ingest", "sample", "weights", "notice")
        }
        self._roles: dict[str, tuple[threading.Thread, threading.Event]] = {}
        self.failures: list[BaseException] = []

    def start(self, role: Callable[[RoleOptions, threading.Event], None], name: str, **changes: Any) -> None:
        options = RoleOptions(
            job=self.job,
            run_dir=self.run_dir,
            name=name,
            replay_ingest=(self._endpoints["ingest"],),
            replay_sample=(self._endpoints["sample"],),
            weights=self._endpoints["weights"],
            notice=self._endpoints["notice"],
            redis="none",
            **changes,
        )
        stop = threading.Event()

        def body() -> None:
            try:
                role(options, stop)
            except BaseException as failure:  # noqa: BLE001 - the test's own thread looks at it
                self.failures.append(failure)

        thread = threading.Thread(target=body, name=name, daemon=True)
        thread.start()
        self._roles[name] = (thread, stop)

    def endpoint(self, kind: str) -> str:
        return self._endpoints[kind]

    def stop(self, name: str) -> None:
        thread, stop = self._roles.pop(name)
        stop.set()
        thread.join(timeout=20)
        assert not thread.is_alive(), f"{name} did not stop"

    def figures(self) -> dict[str, Any]:
        path = self.run_dir / "metrics.jsonl"
        lines = [line for line in read_records(path) if "kind" not in line] if path.exists() else []
        return lines[-1] if lines else {}

    def until(self, condition: Callable[[dict[str, Any]], bool], seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while True:
            assert not self.failures, self.failures
            figures = self.figures()
            if figures and condition(figures):
                return figures
            assert time.monotonic() < deadline, f"not within {seconds} s; the last figures are {figures}"
            time.sleep(0.2)


@contextmanager
def running(job: RLJob, run_dir: Path) -> Iterator[Run]:
    run = Run(job, run_dir)
    run.start(run_replay, "replay-0")
    try:
        yield run
        for name in ("actor-0", "learner", "replay-0"):
            if name in run._roles:
                run.stop(name)
        assert not run.failures, run.failures
    finally:
        for _, stop in run._roles.values():
            stop.set()


@pytest.mark.timeout(100)
@pytest.mark.parametrize("sampling", ["Index", "Frames"])
def test_learner_trains_saves_and_resumes(tmp_path: Path, sampling: str) -> None:
    with running(cartpole(sampling), tmp_path) as run:
        run.start(run_learner, "learner")
        run.start(run_actor, "actor-0")
        figures = run.until(lambda f: f["updates"] > 100 and f.get("policy_lag_updates") is not None, 60)
        assert np.isfinite(figures["loss"])
        assert figures["replay/items"] >= 500
        run.stop("learner")
        saved = checkpoint.latest_valid(tmp_path / "checkpoints")
        assert saved is not None
        counters = saved.manifest["counters"]
        assert counters["updates"] > 100
        assert counters["samples"] == counters["updates"] * 128
        run.start(run_learner, "learner", resume="latest")
        figures = run.until(lambda f: f["updates"] > counters["updates"] + 50, 40)
        run.stop("learner")
        again = checkpoint.latest_valid(tmp_path / "checkpoints")
        assert again is not None
        assert again.manifest["counters"]["epoch"] == counters["epoch"] + 1
        assert again.manifest["counters"]["version"] > counters["version"]
        assert len(checkpoint.stored(tmp_path / "checkpoints")) <= 2
        assert load_policy(tmp_path).spec.id == "CartPole-v1"


@pytest.mark.timeout(100)
def test_learner_goes_on_after_the_replay_service_was_restarted_empty(tmp_path: Path) -> None:
    with running(cartpole(), tmp_path) as run:
        run.start(run_learner, "learner")
        run.start(run_actor, "actor-0")
        before = run.until(lambda f: f["updates"] > 50, 60)
        run.stop("replay-0")
        time.sleep(0.5)
        run.start(run_replay, "replay-0")
        after = run.until(lambda f: f["updates"] > before["updates"] + 100 and f["resubscriptions"] >= 1, 60)
        assert np.isfinite(after["loss"])


@pytest.mark.timeout(150)
def test_cartpole_is_learned(tmp_path: Path) -> None:
    """The whole path learns: games of the greedier half of the ladder grow from about 20 steps to more than 150."""
    with running(cartpole(), tmp_path) as run:
        run.start(run_learner, "learner")
        run.start(run_actor, "actor-0")
        reached = run.until(lambda f: (f.get("mean_return") or 0) > 150, 120)
        client = WeightClient(run.endpoint("weights"), run.endpoint("notice"), evaluation=True)
        offered = client.wait(5.0)
        client.close()
        assert offered is not None
        # The return said with the weights is that of their moment, up to a second older than the status just read.
        assert offered.meta["mean_return"] > 20
        assert 0 < offered.meta["updates"] <= reached["updates"] + 1000
    policy = load_policy(tmp_path)
    environment = make_single_environment("CartPole-v1", policy.env_params, for_scoring=True)
    assert environment.action_space.n == policy.spec.num_actions  # type: ignore[attr-defined]
    environment.close()

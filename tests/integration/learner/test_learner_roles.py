"""The learner with real neighbours in one process: a replay service and the actor role itself, and what it goes on from.

A learner whose checkpoints lie in a bucket, and two learners at one place, in a folder and in a bucket.
"""

import json
import urllib.request
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rljob.algorithms.compute import Compute
from rljob.algorithms.registry import algorithm
from rljob.api import RLJob
from rljob.checkpoints import bucket, store as checkpoint
from rljob.checkpoints.location import directory_of
from rljob.checkpoints.names import StorageProblem
from rljob.checkpoints.saved_policy import PolicyIdentity, load_policy
from rljob.envs import EnvironmentProblem, describe_environment
from rljob.learner import plan, state
from rljob.learner.device import DeviceMemoryProblem, DeviceProblem
from rljob.learner.device_mirror import DeviceMirror, MirrorSize
from rljob.learner.figures import Counters
from rljob.learner.optim.updater import make_updater
from rljob.roles import learner, learner as learner_role
from rljob.roles.actor import run_actor
from rljob.roles.learner import run_learner
from rljob.roles.replay import run_replay
from rljob.weights.client import WeightClient

from tests.support import role_threads
from tests.support.jobs import job_of
from tests.support.role_threads import RoleThreads, over_ipc
from tests.support.s3_server import BUCKET, S3Server
from tests.support.waiting import eventually, known, raising

REPLAY = {"prioritization": {"exponent": 0.5, "importance": 0.4}}


def cartpole() -> RLJob:
    return role_threads.cartpole(replay=REPLAY, checkpoint={"intervalSeconds": 1, "retain": 2})


def mirror_on_this_cpu(
    size: MirrorSize, batch_size: int, prefetch: int, device: torch.device
) -> tuple[DeviceMirror, str]:
    """What a GPU with room would have chosen."""
    return DeviceMirror(size.layout, size.slots, size.shards, device), "on this CPU"


def updates(figures: dict[str, Any]) -> int:
    return int(figures.get("updates", 0))


def test_learner_trains_saves_resumes_and_goes_on_with_an_empty_replay(tmp_path: Path) -> None:
    with over_ipc(cartpole(), tmp_path) as run:
        run.start(run_learner, "learner", last_words=tmp_path / "last-words")
        run.start(run_actor, "actor-0")
        figures = run.until(lambda f: updates(f) > 100 and f.get("policy_lag_updates") is not None, "updates")
        assert np.isfinite(figures["loss"])
        assert figures["replay/items"] >= 500
        (facts,) = run.records("learner")
        assert facts["mirror"] == "in RAM, as the learner computes on the CPU"
        run.stop("learner")
        saved = known(checkpoint.latest_valid(tmp_path / "checkpoints"))
        counters = saved.manifest["counters"]
        assert counters["updates"] > 100
        assert counters["samples"] == counters["updates"] * 128
        told = json.loads((tmp_path / "last-words").read_text())["checkpoint"]
        assert (told["state"], told["step"]) == ("Valid", counters["updates"])
        assert told["digest"].endswith(saved.manifest["sha256"])
        run.start(run_learner, "learner", resume="latest")
        figures = run.until(lambda f: updates(f) > counters["updates"] + 50, "updates after the checkpoint")
        run.stop("replay-0")
        run.start(run_replay, "replay-0")
        more = updates(figures) + 100
        after = run.until(lambda f: updates(f) > more and f["resubscriptions"] >= 1, "updates after a new subscription")
        assert np.isfinite(after["loss"])
        run.stop("learner")
        again = known(checkpoint.latest_valid(tmp_path / "checkpoints"))
        assert again.manifest["counters"]["epoch"] == counters["epoch"] + 1
        assert again.manifest["counters"]["version"] > counters["version"]
        assert len(checkpoint.stored(tmp_path / "checkpoints")) <= 2
        assert load_policy(tmp_path).spec.id == "CartPole-v1"


def test_a_learner_with_two_devices_tries_the_cpu_and_trains_on_one_with_a_mirror_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is one device here, for which torch has two names; a GPU is told from the CPU by the same code."""
    monkeypatch.setattr(learner_role, "devices", lambda *_, **__: (torch.device("cpu:0"), torch.device("cpu")))
    monkeypatch.setattr(plan, "mirror_for", mirror_on_this_cpu)
    with over_ipc(cartpole(), tmp_path) as run:
        run.start(run_learner, "learner")
        run.start(run_actor, "actor-0")
        run.until(lambda f: updates(f) > 20, "updates")
        (facts,) = run.records("learner")
    assert facts["mirror"] == "on this CPU"
    assert facts["device"] in ("cpu:0", "cpu")
    seconds = facts["compute_seconds"]
    assert list(seconds) == ["cpu instead of cpu:0"]
    assert all(taken > 0.0 for taken in seconds.values())


SMALL = {"batchSize": 16, "hiddenUnits": 16}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "ApeXDQN": {
        "algorithm": {"type": "ApeXDQN", "chunkLength": 10, "publishInterval": 2, **SMALL},
        "replay": {"capacity": 2000, "rateLimiter": {"samplesPerInsert": 2, "minSize": 200, "errorBuffer": 400}},
    },
    "IMPALA": {
        "algorithm": {"type": "IMPALA", "unrollLength": 5, "impala": {"unrollQueue": {"capacity": 32}}, **SMALL},
    },
}


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_colours_are_learned_from_by_convolutions(tmp_path: Path, name: str) -> None:
    spec: dict[str, Any] = {
        "environment": {"id": "tests.support.toys:Colours", "frameStack": 2, "centreInput": True, "backend": "Sync"},
        "actors": {"replicas": 1, "envsPerActor": 2},
        **ALGORITHMS[name],
    }
    with over_ipc(job_of(spec), tmp_path, replay=name == "ApeXDQN") as run:
        run.start(run_learner, "learner")
        run.start(run_actor, "actor-0")
        run.until(lambda f: f.get("updates", 0) > 5 and f.get("policy_lag_updates") is not None, "updates", 100)
        run.stop("learner")
    saved = known(checkpoint.latest_valid(tmp_path / "checkpoints"))
    shapes = [saved.tensors[f"online.{name}"].shape for name in ("convolutions.0.weight", "mean")]
    assert shapes == [(32, 2 * 3, 8, 8), (64, 64, 3)]
    assert load_policy(tmp_path).spec.columns[0].shape == (64, 64, 3)


CPU = torch.device("cpu")
FACTORY = """
import gymnasium
from pathlib import Path

class Now(gymnasium.Wrapper):
    def step(self, action):
        if Path(__file__).with_suffix(".broken").exists():
            raise OSError("the licence was taken")
        return self.env.step(action)

def make():
    return Now(gymnasium.make("CartPole-v1"))
"""


@pytest.fixture
def factory(tmp_path: Path) -> Path:
    """An environment of a file, which raises in every step."""
    file = tmp_path / f"factory_{tmp_path.name.replace('-', '_')}.py"
    file.write_text(FACTORY)
    file.with_suffix(".broken").touch()
    return file


def saved(job: RLJob, run_dir: Path, updates: int) -> None:
    """What a learner leaves that has made so many updates, its weights as they were made."""
    params, env_params = job.spec.algorithm.parameters, job.spec.environment.parameters
    environment = describe_environment(job.spec.environment.id, env_params)
    method = algorithm("ApeXDQN")
    updater = make_updater(method, params, method.build(environment, params, env_params).compute(Compute()), CPU)
    identity = PolicyIdentity("ApeXDQN", environment, params, env_params)
    document = {**identity.document(), "counters": Counters(version=1).document(updates)}
    checkpoint.write(run_dir / "checkpoints", checkpoint.checkpoint_name(1, updates), state.capture(updater), document)


def failure(job: RLJob, run_dir: Path) -> BaseException:
    with over_ipc(job, run_dir, replay=False) as run:
        run.start(run_learner, "learner", resume="latest")
        eventually(lambda: run.failures)
        return run.failures.pop()


def test_an_environment_that_raises_keeps_a_run_from_beginning_and_not_from_going_on(
    tmp_path: Path, factory: Path
) -> None:
    job = role_threads.cartpole(environment={"id": f"{factory}:make"}, successPolicy={"rawFrames": 1_000_000})
    problem = failure(job, tmp_path / "new")
    assert isinstance(problem, EnvironmentProblem)
    assert "OSError: the licence was taken" in str(problem)
    saved(job, tmp_path / "old", updates=50)
    with over_ipc(job, tmp_path / "old", replay=False) as run:
        run.start(run_learner, "learner", resume="latest")
        run.until(lambda figures: figures.get("updates") == 50, "the updates of the checkpoint")


@pytest.mark.parametrize(("updates", "kind"), [(0, DeviceProblem), (50, DeviceMemoryProblem)])
def test_memory_that_has_sufficed_may_suffice_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, updates: int, kind: type[Exception]
) -> None:
    job = role_threads.cartpole()
    if updates:
        saved(job, tmp_path, updates)
    monkeypatch.setattr(learner, "make_plan", raising(torch.OutOfMemoryError("CUDA out of memory.")))
    assert type(failure(job, tmp_path)) is kind


URL = f"s3://{BUCKET}/run"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is gone is given up sooner."""
    monkeypatch.setitem(bucket._RETRY, "retry_timeout", timedelta(seconds=1))


def job(url: str = URL, seconds: int = 1, restore_from: str = "Latest", **parameters: object) -> RLJob:
    storage = {"storage": {"objectStore": {"url": url}}} if url else {}
    section = {"intervalSeconds": seconds, "retain": 2, "restoreFrom": restore_from, **storage}
    return role_threads.cartpole(parameters, checkpoint=section)


def train(run: RoleThreads, name: str = "learner") -> None:
    run.start(run_learner, name, resume="latest", announce=run.run_dir / f"{name}.json")


def told(run: RoleThreads, name: str = "learner") -> dict[str, Any]:
    """What a learner says of itself; empty before it answers."""
    try:
        url = json.loads((run.run_dir / f"{name}.json").read_text())["metrics_url"]
        with urllib.request.urlopen(f"{url}/status", timeout=10) as answer:
            return dict(json.load(answer))
    except OSError:
        return {}


def test_a_learner_that_can_not_look_does_not_begin_anew(tmp_path: Path, s3: S3Server) -> None:
    s3.stop()
    problem = failure(job(), tmp_path)
    assert isinstance(problem, StorageProblem)
    assert "can't be reached" in str(problem)


@pytest.mark.parametrize("url", ["", URL], ids=["folder", "bucket"])
def test_a_new_job_goes_back_to_an_older_step_of_the_place_it_takes_over(
    tmp_path: Path, url: str, request: pytest.FixtureRequest
) -> None:
    if url:
        request.getfixturevalue("s3")
    directory = directory_of(job(url), tmp_path)
    with over_ipc(job(url), tmp_path) as run:
        train(run)
        run.start(run_actor, "actor-0")
        run.until(lambda figures: figures.get("updates", 0) >= 600, "updates", 100)
        eventually(lambda: len(checkpoint.stored(directory)) == 2, lambda: run.failures, 100)
        run.stop("learner")
    newest, older = (checkpoint.read(path) for path in checkpoint.stored(directory))
    assert older.manifest["counters"]["updates"] < newest.manifest["counters"]["updates"]
    back = job(url, 3600, older.path.as_uri(), learningRate=1e-30, learningRateFinal=1e-30)
    with over_ipc(back, tmp_path / "again" if url else tmp_path) as run:
        train(run)
        client = WeightClient(run.endpoints["weights"], run.endpoints["notice"])
        weights = eventually(client.poll, lambda: run.failures)
        client.close()
        assert weights.epoch == 2
        for name, tensor in weights.state().items():
            assert torch.equal(tensor, older.tensors[f"online.{name}"])
        run.start(run_actor, "actor-0")
        eventually(lambda: told(run).get("updates", 0) >= 5, lambda: run.failures, 100)
        run.stop("learner")
    found = known(checkpoint.latest_valid(directory))
    assert found.manifest["counters"]["epoch"] == 2
    assert found.manifest["counters"]["updates"] < newest.manifest["counters"]["updates"]
    with over_ipc(back, tmp_path / "again" if url else tmp_path, replay=False) as run:
        train(run)
        eventually(lambda: told(run).get("epoch") == 3, lambda: run.failures)
        assert told(run)["updates"] == found.manifest["counters"]["updates"], "later starts go on with its own"

"""A learner whose checkpoints lie in a bucket, and two learners at one place, in a folder and in a bucket."""

import json
import urllib.request
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from rljob.api import RLJob
from rljob.checkpoints import bucket, store as checkpoint
from rljob.checkpoints.location import directory_of
from rljob.checkpoints.names import StorageProblem
from rljob.roles.actor import run_actor
from rljob.roles.learner import run_learner
from rljob.weights.exchange import WeightClient

from tests.support import role_threads
from tests.support.role_threads import RoleThreads, over_ipc
from tests.support.s3_server import BUCKET, S3Server
from tests.support.waiting import eventually, known

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
    with over_ipc(job(), tmp_path, replay=False) as run:
        train(run)
        eventually(lambda: run.failures)
        failure = run.failures.pop()
    assert isinstance(failure, StorageProblem)
    assert "can't be reached" in str(failure)


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

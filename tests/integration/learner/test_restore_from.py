"""A run that starts from another one's checkpoint: real roles, real files, and what is said where it can't."""

import shutil
from pathlib import Path

import pytest
import torch
from rljob.api import RLJob, dump_manifest
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.store import CheckpointProblem
from rljob.roles.actor import run_actor
from rljob.roles.learner import run_learner
from rljob.weights.client import WeightClient

from tests.support import role_threads
from tests.support.forked_roles import ForkedRole
from tests.support.role_threads import over_ipc
from tests.support.waiting import eventually, known


def job(restore_from: str = "Latest", **parameters: object) -> RLJob:
    return role_threads.cartpole(parameters, checkpoint={"intervalSeconds": 3600, "restoreFrom": restore_from})


def trained(of: RLJob, run_dir: Path, updates: int) -> checkpoint.Checkpoint:
    """Train until so many updates are made; what was saved at the end."""
    with over_ipc(of, run_dir) as run:
        run.start(run_learner, "learner", resume="latest")
        run.start(run_actor, "actor-0")
        run.until(lambda figures: figures.get("updates", 0) >= updates, f"{updates} updates", 100)
        run.stop("learner")
    return known(checkpoint.latest_valid(run_dir / "checkpoints"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> checkpoint.Checkpoint:
    """The checkpoint of a short run."""
    return trained(job(), tmp_path_factory.mktemp("other"), 60)


def test_a_new_run_starts_from_it_and_later_goes_on_with_its_own(tmp_path: Path, other: checkpoint.Checkpoint) -> None:
    source = tmp_path / "source" / "checkpoints" / other.path.name
    shutil.copytree(other.path, source)
    still = {"learningRate": 1e-30, "learningRateFinal": 1e-30, "targetUpdateInterval": 1_000_000}
    run_folder = (tmp_path / "source").as_uri()  # another test names a checkpoint of one
    fresh = job(run_folder, **still)  # its networks stay what they were, however fast it makes updates
    run_dir = tmp_path / "run"
    with over_ipc(fresh, run_dir) as run:
        run.start(run_learner, "learner", resume="latest")
        client = WeightClient(run.endpoints["weights"], run.endpoints["notice"])
        weights = eventually(client.poll, lambda: run.failures)
        client.close()
        assert (weights.version, weights.epoch, weights.meta["updates"], weights.meta["steps"]) == (1, 1, 0, 0)
        for name, tensor in weights.state().items():
            assert torch.equal(tensor, other.tensors[f"online.{name}"])
        run.start(run_actor, "actor-0")
        run.until(lambda figures: figures.get("updates", 0) >= 20, "updates")
        run.stop("learner")
    first = known(checkpoint.latest_valid(run_dir / "checkpoints"))
    counters = first.manifest["counters"]
    steps = int(first.tensors["optimizer.0.step"]) - int(other.tensors["optimizer.0.step"])
    assert steps == counters["updates"] >= 20, "the optimiser went on from what it remembered"
    for name in other.section("target"):
        torch.testing.assert_close(first.tensors[f"target.{name}"], other.tensors[f"target.{name}"])
    shutil.rmtree(tmp_path / "source")
    again = trained(job(run_folder), run_dir, counters["updates"] + 10)
    assert again.manifest["counters"]["epoch"] == counters["epoch"] + 1


def test_what_cannot_be_started_from_is_refused_with_what_came(tmp_path: Path, other: checkpoint.Checkpoint) -> None:
    def refusal(restore_from: str, **parameters: object) -> str:
        file = tmp_path / "job.yaml"
        file.write_text(dump_manifest(job(restore_from, **parameters)))
        addresses = {name: f"ipc://{tmp_path}/{name}" for name in ("replay_sample", "weights", "notice")}
        given = {"job": file, "run_dir": tmp_path / "run", "name": "learner", "resume": "latest", **addresses}
        log = tmp_path / "log"
        assert ForkedRole("learner", log, **given).wait() == 78, log.read_text()
        assert "Traceback" not in log.read_text()
        return log.read_text().splitlines()[-1]

    assert f"restoreFrom: {tmp_path}/nowhere is no folder here" in refusal(f"file://{tmp_path}/nowhere")
    wide = refusal(f"file://{other.path}", hiddenUnits=64)
    assert "another network" in wide
    assert "advantage.weight (expected 2x64, came 2x128)" in wide


def test_a_policy_of_something_else_is_named(tmp_path: Path, other: checkpoint.Checkpoint) -> None:
    environment = other.manifest["environment"]
    of_six = {**environment, "action": [{**environment["action"][0], "sizes": [6]}]}
    foreign, _ = checkpoint.write(tmp_path, "step-1", other.tensors, {**other.manifest, "environment": of_six})
    with over_ipc(job(f"file://{foreign}"), tmp_path / "run") as run:
        run.start(run_learner, "learner", resume="latest")
        eventually(lambda: run.failures)
        failure = run.failures.pop()
    assert isinstance(failure, CheckpointProblem)
    assert "what it was trained in has other leaves: action: Discrete int64 [] of 6 where this one has " in str(failure)

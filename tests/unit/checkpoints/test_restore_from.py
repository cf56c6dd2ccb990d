"""Which checkpoint ``restoreFrom`` names, and what is said where it names none."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.files import VerifiedFiles
from rljob.checkpoints.names import MANIFEST, TENSORS, CheckpointProblem
from rljob.checkpoints.restore_from import STARTED_FROM, begins_elsewhere, named_checkpoint, started_from

from tests.support.jobs import job_of
from tests.support.specs import spec_of
from tests.unit.learner.learner_builders import SPEC, identity, parameters


def named(uri: str) -> VerifiedFiles | None:
    spec = {
        "algorithm": {"type": "ApeXDQN"},
        "environment": {"id": "CartPole-v1"},
        "checkpoint": {"restoreFrom": uri},
    }
    return named_checkpoint(job_of(spec), SPEC)


def written(directory: Path, name: str) -> Path:
    path, _ = checkpoint.write(directory, name, {"online.x": torch.ones(1)}, identity(parameters()).document())
    return path


def test_a_run_names_its_newest_and_a_checkpoint_itself(tmp_path: Path) -> None:
    run = tmp_path / "a run"
    old, new = (written(run / "checkpoints", name) for name in ("step-1", "step-2"))
    for uri, path in (
        (run.as_uri(), new),  # with %20 in it
        ((run / "checkpoints").as_uri(), new),
        (old.as_uri(), old),
        (f"file://localhost{old}", old),
    ):
        found = named(uri)
        assert found is not None
        assert found.path == path
    (new / TENSORS).write_bytes(b"damaged")
    found = named(run.as_uri())
    assert found is not None
    assert found.path == old
    assert named("Latest") is named("None") is None


def test_what_names_none_is_told_with_what_would_be_right(tmp_path: Path) -> None:
    def refused(uri: str, *words: str) -> None:
        with pytest.raises(CheckpointProblem) as problem:
            named(uri)
        for word in ("spec.checkpoint.restoreFrom", *words):
            assert word in str(problem.value)

    refused("gs://bucket/run/4000", "can't be read here", "file:///path/to/run", "s3://bucket/prefix")
    refused("file://elsewhere/runs/pong", "can't be read here")
    refused(f"file://{tmp_path}/nowhere", "is no folder here")
    refused(f"file://{tmp_path}", "holds no checkpoint that verifies")
    path = written(tmp_path, "step-1")
    manifest = json.loads((path / MANIFEST).read_text())

    def changed(**keys: object) -> None:
        (path / MANIFEST).write_text(json.dumps({**manifest, **keys}))

    changed(algorithm="IMPALA")
    refused(path.as_uri(), "expected is a policy of ApeXDQN, what came is one of IMPALA")
    longer = spec_of("Test/Vectors-v0", (5,), "float32", 1, 2)
    changed(environment=asdict(longer))
    refused(path.as_uri(), "observation: vector float32 [5] where this one has observation: vector float32 [4]")
    more = spec_of("Test/Vectors-v0", (4,), "float32", 1, 3)
    changed(environment=asdict(more))
    refused(path.as_uri(), "action: Discrete int64 [] of 3 where this one has action: Discrete int64 [] of 2")
    changed(environment={"id": "Test/Vectors-v0", "frame_shape": [4]})
    refused(path.as_uri(), "does not say what it was trained in")
    (path / TENSORS).write_bytes(b"other")
    refused(path.as_uri(), "is damaged")
    refused(f"file://{tmp_path}", "holds no checkpoint that verifies", "is damaged")


def test_only_checkpoints_that_began_from_it_are_the_jobs_own() -> None:
    """Those of a job that had the place before are not, whatever it began from itself."""

    def begins(restore_from: str, newest: dict[str, object] | None) -> bool:
        section = {"restoreFrom": restore_from}
        job = job_of({"preset": "CartPoleApeX", "checkpoint": section})
        assert started_from(job) == ("" if restore_from in ("Latest", "None") else restore_from)
        return begins_elsewhere(job, newest)

    assert not any(
        begins(word, newest) for word in ("Latest", "None") for newest in (None, {}, {STARTED_FROM: "s3://a"})
    )
    assert begins("s3://a/b", None)
    assert begins("s3://a/b", {STARTED_FROM: ""})
    assert begins("s3://a/b", {STARTED_FROM: "s3://a/c"})
    assert not begins("s3://a/b", {STARTED_FROM: "s3://a/b"})
    assert not begins("s3://a/b", {}), "one from before that was written"

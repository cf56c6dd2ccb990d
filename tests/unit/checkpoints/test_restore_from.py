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
        assert found.path == path
    (new / TENSORS).write_bytes(b"damaged")
    found = named(run.as_uri())
    assert found.path == old
    assert named("Latest") is named("None") is None


def test_what_names_none_is_told_with_what_would_be_right(tmp_path: Path) -> None:
    def refused(uri: str, *words: str) -> None:
        with pytest.raises(CheckpointProblem) as problem:
            named(uri)
        assert [word for word in ("spec.checkpoint.restoreFrom", *words) if word not in str(problem.value)] == []

    for uri, *words in (
        ("gs://bucket/run/4000", "can't be read here", "file:///path/to/run", "s3://bucket/prefix"),
        ("file://elsewhere/runs/pong", "can't be read here"),
        (f"file://{tmp_path}/nowhere", "is no folder here"),
        (f"file://{tmp_path}", "holds no checkpoint that verifies"),
    ):
        refused(uri, *words)
    path = written(tmp_path, "step-1")
    manifest = json.loads((path / MANIFEST).read_text())

    longer, more = (spec_of("Test/Vectors-v0", (size,), "float32", 1, actions) for size, actions in ((5, 2), (4, 3)))
    for change, said in (
        ({"algorithm": "IMPALA"}, "expected is a policy of ApeXDQN, what came is one of IMPALA"),
        (
            {"environment": asdict(longer)},
            "observation: vector float32 [5] where this one has observation: vector float32 [4]",
        ),
        (
            {"environment": asdict(more)},
            "action: Discrete int64 [] of 3 where this one has action: Discrete int64 [] of 2",
        ),
        ({"environment": {"id": "Test/Vectors-v0", "frame_shape": [4]}}, "does not say what it was trained in"),
    ):
        (path / MANIFEST).write_text(json.dumps({**manifest, **change}))
        refused(path.as_uri(), said)
    (path / TENSORS).write_bytes(b"other")
    refused(path.as_uri(), "is damaged")
    refused(f"file://{tmp_path}", "holds no checkpoint that verifies", "is damaged")


@pytest.mark.parametrize(
    ("restore_from", "newest", "begins"),
    [
        *((word, newest, False) for word in ("Latest", "None") for newest in (None, {}, {STARTED_FROM: "s3://a"})),
        ("s3://a/b", None, True),
        ("s3://a/b", {STARTED_FROM: ""}, True),
        ("s3://a/b", {STARTED_FROM: "s3://a/c"}, True),
        ("s3://a/b", {STARTED_FROM: "s3://a/b"}, False),
        ("s3://a/b", {}, False),  # one from before that was written
    ],
)
def test_only_checkpoints_that_began_from_it_are_the_jobs_own(
    restore_from: str, newest: dict[str, object] | None, begins: bool
) -> None:
    """Those of a job that had the place before are not, whatever it began from itself."""
    job = job_of({"preset": "CartPoleApeX", "checkpoint": {"restoreFrom": restore_from}})
    assert started_from(job) == ("" if restore_from in ("Latest", "None") else restore_from)
    assert begins_elsewhere(job, newest) == begins

"""The run folder: what it refuses, and that its files are replaced in one step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rljob.api import load_manifest
from rljob_operator.local.run_folder import RunFolderProblem, prepare, write_json

EXAMPLES = Path(__file__).parents[3] / "manifests" / "examples"


def test_the_manifest_in_the_folder_is_the_job(tmp_path: Path) -> None:
    job = load_manifest(EXAMPLES / "cartpole-apex.yaml", ["spec.algorithm.parameters.seed=7"])
    manifest = prepare(tmp_path / "run", job, resume=False)
    again = load_manifest(manifest)
    assert again.spec == job.spec
    assert again.spec.algorithm.resolved().seed == 7


def test_an_older_run_is_not_written_over(tmp_path: Path) -> None:
    job = load_manifest(EXAMPLES / "cartpole-apex.yaml")
    prepare(tmp_path, job, resume=False)
    with pytest.raises(RunFolderProblem, match="--resume"):
        prepare(tmp_path, job, resume=False)
    prepare(tmp_path, job, resume=True)


def test_nothing_to_resume(tmp_path: Path) -> None:
    job = load_manifest(EXAMPLES / "cartpole-apex.yaml")
    with pytest.raises(RunFolderProblem, match="nothing to resume"):
        prepare(tmp_path / "none", job, resume=True)


def test_a_path_that_can_not_be_a_folder(tmp_path: Path) -> None:
    job = load_manifest(EXAMPLES / "cartpole-apex.yaml")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderProblem, match="can't be written"):
        prepare(tmp_path / "file" / "run", job, resume=False)


def test_a_json_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "outcome.json"
    write_json(path, {"state": "Failed"})
    write_json(path, {"state": "Complete"})
    assert json.loads(path.read_text()) == {"state": "Complete"}
    assert [p.name for p in tmp_path.iterdir()] == ["outcome.json"]

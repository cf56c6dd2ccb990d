"""What `rljob run` looks at before it starts a process."""

from __future__ import annotations

from pathlib import Path

import pytest
from rljob.api import load_manifest
from rljob.api.networks import NetworkProblem
from rljob.checkpoints.names import CheckpointProblem
from rljob_operator.local import preflight

from tests.support.controller import CARTPOLE


def test_frames_that_no_network_sees_are_named_before_anything_starts() -> None:
    here = ["spec.environment={id: tests.support.toys:Colours}"]
    huge = '{"height": 300, "width": 200}'
    overrides = [*here, f"spec.environment.kwargs={huge}"]
    with pytest.raises(NetworkProblem, match=r"has shape \(300, 200, 3\)"):
        preflight.check(load_manifest(CARTPOLE, [*overrides, "spec.algorithm.impala.network=Auto"]))
    preflight.check(load_manifest(CARTPOLE, [*overrides, "spec.algorithm.impala.network=MLP"]))
    preflight.check(load_manifest(CARTPOLE, [*here, "spec.algorithm.impala.network=Auto"]))


def test_a_checkpoint_to_start_from_is_looked_for_before_a_new_run_only(tmp_path: Path) -> None:
    job = load_manifest(CARTPOLE, [f"spec.checkpoint.restoreFrom=file://{tmp_path}/gone"])
    with pytest.raises(CheckpointProblem, match="gone is no folder here"):
        preflight.check(job, new=True)
    preflight.check(job)  # a run that goes on has its own

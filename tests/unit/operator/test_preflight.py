"""What `rljob run` looks at before it starts a process."""

from __future__ import annotations

from pathlib import Path

import pytest
from rljob.api import load_manifest
from rljob.api.networks import NetworkProblem
from rljob.checkpoints.names import CheckpointProblem
from rljob.envs import EnvironmentProblem, environment_of, hand_over
from rljob_operator.local import preflight

from tests.support.controller import CARTPOLE
from tests.support.paths import EXAMPLES
from tests.support.specs import spec_of


def test_frames_that_no_network_sees_are_named_before_anything_starts() -> None:
    here = "spec.environment={id: tests.support.toys:Colours}"
    huge = 'spec.environment.kwargs={"height": 300, "width": 200}'

    def check(network: str, *more: str) -> None:
        preflight.check(load_manifest(CARTPOLE, [here, *more, f"spec.algorithm.impala.network={network}"]))

    with pytest.raises(NetworkProblem, match=r"has shape \(300, 200, 3\)"):
        check("Auto", huge)
    check("MLP", huge)
    check("Auto")


def test_a_replay_larger_than_the_memory_is_refused() -> None:
    with pytest.raises(preflight.PreflightProblem, match="available"):
        preflight.check(load_manifest(EXAMPLES / "cartpole-apex.yaml", ["spec.replay.capacity=90000000000"]))


def test_an_environment_that_ends_its_process_does_not_end_this_one(tmp_path: Path) -> None:
    file = tmp_path / "ends_it.py"
    file.write_text("import os\n\ndef make():\n    os._exit(3)\n")
    with pytest.raises(EnvironmentProblem, match=r"'ends_it.py:make': the process that tried it ended by exit code 3"):
        preflight.check(load_manifest(CARTPOLE, [f"spec.environment={{id: {file}:make}}"]))


def test_what_it_is_is_handed_to_roles_that_need_no_more(tmp_path: Path) -> None:
    """They do not look for it, as long as the job asks for the same one."""
    overrides = ["spec.environment={id: nowhere:make}", "spec.environment.kwargs={size: 3}"]
    source = load_manifest(CARTPOLE, overrides).spec.environment
    spec = spec_of("nowhere:make", (3,), "float32", 1, 2, 1, "print")
    hand_over(tmp_path, source, spec)
    assert environment_of(tmp_path, source) == spec
    other = load_manifest(CARTPOLE, [overrides[0]]).spec.environment
    with pytest.raises(EnvironmentProblem, match="No module named 'nowhere'"):
        environment_of(tmp_path, other)


def test_a_checkpoint_to_start_from_is_looked_for_before_a_new_run_only(tmp_path: Path) -> None:
    job = load_manifest(CARTPOLE, [f"spec.checkpoint.restoreFrom=file://{tmp_path}/gone"])
    with pytest.raises(CheckpointProblem, match="gone is no folder here"):
        preflight.check(job, new=True)
    preflight.check(job)  # a run that goes on has its own

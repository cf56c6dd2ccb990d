"""A learner that was to have a GPU on a machine where there is none: it ends with the reason, or says so and goes on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from rljob.api.exit_codes import EXIT_CONFIGURATION

from tests.support.local_run import ENDLESS, LocalRun
from tests.support.paths import EXAMPLES
from tests.support.role_commands import worker_command

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
"""Hides every device, so that these tests mean the same on a machine with one."""
ASKS = "learner.accelerator asks for nvidia.com/gpu"
pytestmark = pytest.mark.timeout(240)


def accelerator(text: str) -> list[str]:
    return ["--set", f"spec.learner.accelerator={{{text}}}"]


@pytest.mark.long
def test_a_run_goes_on_without_it_and_says_so(local_run: Callable[..., LocalRun]) -> None:
    run = local_run(*ENDLESS, *accelerator("count: 1"), environment=NO_GPU)
    run.until_learning(20)
    run.until(lambda: f"{ASKS}, none is here: the learner runs on the CPU" in run.output, 30, "the notice")
    assert run.status("learner")["device"] == "cpu"
    assert ASKS in (run.run_dir / "logs" / "learner.log").read_text()
    assert run.interrupt() == 130


@pytest.mark.long
def test_a_run_that_says_fail_fails_with_the_reason(local_run: Callable[..., LocalRun]) -> None:
    run = local_run(*ENDLESS, *accelerator("count: 1, onMissing: Fail"), environment=NO_GPU)
    assert run.finish(120) == 1, run.output
    assert run.reason("Failed") == "FailurePolicyRule"
    (failure,) = [each for each in run.job_status.failures if each.pod_name == "learner"]
    assert failure.exit_code == EXIT_CONFIGURATION
    assert f"{ASKS}, but " in run.output
    assert "onMissing: UseCPU" in run.output
    assert "Traceback" not in run.output + run.logs()


@pytest.mark.parametrize("said", ["the option", "the environment"])
def test_a_pod_ends_with_the_reason_where_nothing_is_said(tmp_path: Path, said: str) -> None:
    manifest = (EXAMPLES / "cartpole-apex.yaml").read_text().replace(
        "\nspec:\n", "\nspec:\n  learner:\n    accelerator: {count: 1, resourceName: amd.com/gpu}\n", 1
    )  # fmt: skip
    (tmp_path / "job.yaml").write_text(manifest)
    addresses = {name: f"ipc://{tmp_path}/{name}" for name in ("replay_sample", "weights", "notice")}
    command = worker_command("learner", job=tmp_path / "job.yaml", run_dir=tmp_path, name="learner", **addresses)
    command += ["--on-cluster"] if said == "the option" else []
    environment = os.environ | NO_GPU | ({} if said == "the option" else {"RLJOB_ON_CLUSTER": "1"})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == EXIT_CONFIGURATION
    assert done.stderr.startswith("rljob: learner.accelerator asks for amd.com/gpu, but ")
    assert len(done.stderr.splitlines()) == 1

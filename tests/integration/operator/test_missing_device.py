"""A learner that was to have a GPU on a machine where there is none: it ends with the reason, or says so and goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rljob.api.exit_codes import EXIT_CONFIGURATION

from tests.support.forked_roles import ForkedRole
from tests.support.local_run import ENDLESS, LocalRun
from tests.support.paths import EXAMPLES

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
"""Hides every device, so that these tests mean the same on a machine with one."""
ASKS = "learner.accelerator asks for nvidia.com/gpu"


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
    given: dict[str, object] = {name: f"ipc://{tmp_path}/{name}" for name in ("replay_sample", "weights", "notice")}
    given |= {"job": tmp_path / "job.yaml", "run_dir": tmp_path, "name": "learner"}
    if said == "the option":
        given["on_cluster"] = ""
    learner = ForkedRole(
        "learner", tmp_path / "log", NO_GPU | {"RLJOB_ON_CLUSTER": str(int(said != "the option"))}, **given
    )
    assert learner.wait() == EXIT_CONFIGURATION
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert line.startswith("rljob: learner.accelerator asks for amd.com/gpu, but ")

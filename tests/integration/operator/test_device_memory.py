"""A learner whose device's memory does not suffice: by torch's own error, raised in an algorithm of the test's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rljob.api.exit_codes import EXIT_CONFIGURATION, EXIT_FAILURE

from tests.support.local_run import ENDLESS, LocalRun
from tests.support.plugins_page import write_example

SAID = "CUDA out of memory. Tried to allocate 20.00 GiB."
pytestmark = [pytest.mark.timeout(240), pytest.mark.long]


def out_of_memory(folder: Path, condition: str) -> Path:
    """The page's example, whose loss finds no memory where ``condition`` holds."""
    job = write_example(folder)
    code = (folder / "soft_q.py").read_text()
    count = "        SoftQ.calls = getattr(SoftQ, 'calls', 0) + 1\n"
    failing = f"{count}        if {condition}:\n            raise torch.OutOfMemoryError('{SAID} And more.')\n"
    (folder / "soft_q.py").write_text(code.replace("        taken = online(", f"{failing}        taken = online("))
    return job


def test_a_batch_that_never_fits_fails_the_job_with_what_to_change(
    local_run: Callable[..., LocalRun], tmp_path: Path
) -> None:
    run = local_run(*ENDLESS, job=out_of_memory(tmp_path, "len(batch.action) > 20"))
    assert run.finish(120) == 1, run.output
    assert run.reason("Failed") == "FailurePolicyRule"
    (failure,) = [each for each in run.job_status.failures if each.pod_name == "learner"]
    assert failure.exit_code == EXIT_CONFIGURATION
    assert "the learner's device is out of memory: write a smaller batchSize (now " in run.output
    assert f"torch says: {SAID}" in run.output
    assert "Traceback" not in run.output + run.logs()


def test_memory_that_runs_out_later_is_a_failure_like_any_other(
    local_run: Callable[..., LocalRun], tmp_path: Path
) -> None:
    """What fitted once may fit again: the learner is started anew, as often as the job allows."""
    condition = "len(batch.action) > 20 and SoftQ.calls > 300"  # trials of ways to compute are fewer
    run = local_run(*ENDLESS, "--set", "spec.backoffLimit=0", job=out_of_memory(tmp_path, condition))
    assert run.finish(120) == 1, run.output
    assert run.reason("Failed") == "BackoffLimitExceeded"
    (failure,) = [each for each in run.job_status.failures if each.pod_name == "learner"]
    assert failure.exit_code == EXIT_FAILURE
    assert "out of memory" in run.output

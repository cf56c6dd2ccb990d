"""`rljob run` with its checkpoints in a bucket: suspended and resumed at the same step, and with a server that goes and comes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.local_run import ENDLESS, LocalRun
from tests.support.s3_server import BUCKET, SECRET_KEY, S3Server, s3

__all__ = ["s3"]
URL = f"s3://{BUCKET}/runs/cartpole"
IN_BUCKET = ("--set", f"spec.checkpoint.storage.objectStore.url={URL}", "--set", "spec.checkpoint.intervalSeconds=2")

pytestmark = pytest.mark.timeout(500)


def test_a_run_is_suspended_and_resumed_at_the_same_step(local_run: Callable[..., LocalRun], s3: S3Server) -> None:
    run = local_run(*ENDLESS, *IN_BUCKET)
    folder = str(run.run_dir)
    run.until_learning(100)
    code, printed = run.verb("checkpoint", folder, "--wait")
    assert code == 0, printed
    assert f"verified, {URL}/epoch-000001-step-" in printed

    s3.stop()
    run.until(lambda: run.reason("CheckpointValid") == "StorageError", 120, "the condition")
    condition = run.job_status.condition("CheckpointValid")
    assert condition is not None
    assert f"{s3.url} can't be reached" in condition.message
    run.until_learning(run.status("learner")["updates"] + 50)
    assert run.verb("suspend", folder)[0] == 0
    run.until(lambda: "can't be reached" in condition_message(run, "Suspended"), 120, "what it waits for")
    assert run.status("learner"), "it is not let go without a checkpoint"
    s3.start()
    run.until(lambda: run.job_status.state == "Suspended", 180, "the suspension")
    kept = run.job_status.checkpoint
    assert kept is not None
    assert kept.uri.startswith(URL)
    assert s3.path(kept.uri.removeprefix(f"s3://{BUCKET}/")).is_dir()
    assert run.reason("CheckpointValid") == "Verified"

    assert run.verb("resume", folder, "--wait")[0] == 0
    first = run.until(lambda: run.status("learner").get("updates"), 90, "the learner")
    log = (run.run_dir / "logs" / "learner.log").read_text()
    assert f"resumed from {Path(kept.uri).name}: update {kept.step}, epoch 2" in log
    assert first >= kept.step
    run.until_learning(kept.step + 30)
    assert run.interrupt() == 130

    assert not (run.run_dir / "checkpoints").exists()
    for file in run.run_dir.rglob("*"):
        assert not file.is_file() or SECRET_KEY.encode() not in file.read_bytes(), file
    assert SECRET_KEY not in run.output
    for source in (folder, URL, kept.uri.rpartition("/")[0]):
        code, printed = run.verb("eval", source, "--episodes", "1", "--json")
        assert code == 0, printed


def condition_message(run: LocalRun, type: str) -> str:
    condition = run.job_status.condition(type)
    return condition.message if condition is not None else ""


def test_a_bucket_that_can_not_be_used_is_refused_before_anything_starts(
    local_run: Callable[..., LocalRun], s3: S3Server
) -> None:
    def refused(url: str, environment: dict[str, str]) -> str:
        run = local_run("--set", f"spec.checkpoint.storage.objectStore.url={url}", environment=environment)
        assert run.finish(60) == 1
        assert len(run.output.splitlines()) == 1, run.output
        return run.output

    assert "there is no bucket elsewhere" in refused("s3://elsewhere/run", {})
    words = refused(URL, {"AWS_SECRET_ACCESS_KEY": "wrong"})
    assert "does not accept the credentials" in words
    assert "wrong" not in words


def test_a_run_begins_from_a_checkpoint_in_a_bucket(local_run: Callable[..., LocalRun], s3: S3Server) -> None:
    first = local_run(*ENDLESS, *IN_BUCKET)
    first.until_learning(50)
    assert first.interrupt() == 130
    second = local_run(*ENDLESS, "--set", f"spec.checkpoint.restoreFrom={URL}", run_dir=first.run_dir.parent / "second")
    second.until_learning(10)
    assert f"starting from {URL}/" in (second.run_dir / "logs" / "learner.log").read_text()
    assert second.interrupt() == 130
    missing = local_run("--set", f"spec.checkpoint.restoreFrom={URL}/nothing", run_dir=first.run_dir.parent / "third")
    assert missing.finish(60) == 2
    assert "holds no checkpoint that verifies" in missing.output

"""What a run keeps on servers of others: checkpoints in a bucket, whose server goes and comes, and experience in a Redis."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.local_run import ENDLESS, LocalRun
from tests.support.s3_server import BUCKET, SECRET_KEY, S3Server
from tests.support.shared_redis import PASSWORD, shared_redis
from tests.support.waiting import known

URL = f"s3://{BUCKET}/runs/cartpole"
IN_BUCKET = ("--set", f"spec.checkpoint.storage.objectStore.url={URL}", "--set", "spec.checkpoint.intervalSeconds=2")


def test_a_run_is_suspended_and_resumed_at_the_step_that_is_in_a_bucket(
    local_run: Callable[..., LocalRun], s3: S3Server
) -> None:
    run = local_run(*ENDLESS, *IN_BUCKET)
    folder = str(run.run_dir)
    run.until_learning(100)
    run.answer("checkpoint", folder, "--wait", said=f"verified, {URL}/epoch-000001-step-")

    s3.stop()
    run.until(lambda: run.reason("CheckpointValid") == "StorageError", 120, "the condition")
    assert f"{s3.url} can't be reached" in known(run.job_status.condition("CheckpointValid")).message
    run.until_learning(run.status("learner")["updates"] + 50)
    assert run.verb("suspend", folder)[0] == 0
    run.until(lambda: "can't be reached" in str(run.job_status.condition("Suspended")), 120, "what it waits for")
    assert run.status("learner"), "it is not let go without a checkpoint"
    s3.start()
    run.until(lambda: run.job_status.state == "Suspended", 180, "the suspension")
    kept = known(run.job_status.checkpoint)
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
        run.answer("eval", source, "--episodes", "1", "--json")


@pytest.mark.timeout(600)
@pytest.mark.long
def test_a_run_goes_on_with_the_experience_that_is_in_a_redis(
    local_run: Callable[..., LocalRun], tmp_path: Path
) -> None:
    with shared_redis(tmp_path / "shared") as shared:
        login = {"RLJOB_REDIS_PASSWORD": PASSWORD}
        where = f"spec.replay.redis.external.url={shared.url}"
        run = local_run(*ENDLESS, "--set", where, environment=login)
        run.until_learning(50)
        run.until(lambda: run.status("replay-0").get("durable") is True, 60, "durable")
        assert run.interrupt() == 130
        assert shared.names("run:")
        assert not (run.run_dir / "redis" / "replay-0").exists(), "no server of its own is started"

        again = local_run("--resume", run_dir=run.run_dir, job=run.run_dir / "job.yaml", environment=login)
        log = run.run_dir / "logs" / "replay-0.log"
        again.until(lambda: "restored in" in log.read_text(), 60, "what the first one has stored")
        assert again.status("replay-0")["items"] >= 500
        assert again.interrupt() == 130
        secret = [file for file in run.run_dir.rglob("*") if file.is_file() and PASSWORD.encode() in file.read_bytes()]
        assert not secret, "the password is in no file"
        assert PASSWORD not in run.output + again.output

"""`rljob run` with its checkpoints in a bucket: suspended and resumed at the same step, and with a server that goes and comes."""

from collections.abc import Callable
from pathlib import Path

from tests.support.local_run import ENDLESS, LocalRun
from tests.support.s3_server import BUCKET, SECRET_KEY, S3Server
from tests.support.waiting import known

URL = f"s3://{BUCKET}/runs/cartpole"
IN_BUCKET = ("--set", f"spec.checkpoint.storage.objectStore.url={URL}", "--set", "spec.checkpoint.intervalSeconds=2")


def test_a_run_is_suspended_and_resumed_at_the_same_step(local_run: Callable[..., LocalRun], s3: S3Server) -> None:
    run = local_run(*ENDLESS, *IN_BUCKET)
    folder = str(run.run_dir)
    run.until_learning(100)
    run.answer("checkpoint", folder, "--wait", said=f"verified, {URL}/epoch-000001-step-")

    s3.stop()
    run.until(lambda: run.reason("CheckpointValid") == "StorageError", 120, "the condition")
    assert f"{s3.url} can't be reached" in known(run.job_status.condition("CheckpointValid")).message
    run.until_learning(run.status("learner")["updates"] + 50)
    assert run.verb("suspend", folder)[0] == 0
    run.until(lambda: "can't be reached" in condition_message(run, "Suspended"), 120, "what it waits for")
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


def condition_message(run: LocalRun, type: str) -> str:
    condition = run.job_status.condition(type)
    return condition.message if condition is not None else ""

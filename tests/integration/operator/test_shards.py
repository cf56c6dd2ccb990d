"""The replay of a run: two shards, one of which is killed; and a log in a Redis that runs already."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.local_run import ENDLESS, LocalRun
from tests.support.shared_redis import PASSWORD, shared_redis

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]
TWO_SHARDS = ["--set", "spec.replay.shards=2", "--set", "spec.actors.replicas=2"]


def test_a_shard_that_was_away_and_comes_back_without_its_redis_data_stops_nothing(
    local_run: Callable[..., LocalRun],
) -> None:
    run = local_run(*ENDLESS, *TWO_SHARDS, "--set", "spec.backoffLimit=100")
    run.until_learning(50)
    away_until, lives = time.monotonic() + 6, 0
    while time.monotonic() < away_until:  # each new life is ended before it has anything
        pid = run.kill("replay-0")
        shutil.rmtree(run.run_dir / "redis" / "replay-0", ignore_errors=True)
        lives += 1
        run.until(lambda pid=pid: run.announced("replay-0").get("pid") not in (None, pid), 60, "the next life")
    run.until_learning(run.status("learner")["updates"] + 200)
    run.until(lambda: run.status("replay-0").get("state") == "serving", 60, "the empty shard is filled again")
    batches = run.status("replay-0")["batches_total"]
    run.until(lambda: run.status("replay-0").get("batches_total", 0) > batches + 50, 60, "it is drawn from again")
    run.until_learning(run.status("learner")["updates"] + 200)
    assert (run.status("learner")["standstill"], run.reason("Progressing")) == ("", "LearnerAdvancing")
    assert run.interrupt() == 130


def test_a_run_goes_on_with_the_experience_that_it_has_there(
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

"""`rljob run` with the replay's log in a Redis that runs already: durable there, and there again after Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.local_run import ENDLESS, LocalRun
from tests.support.shared_redis import PASSWORD, shared_redis

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


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
        left = shared.names("run:")
        assert left
        assert not (run.run_dir / "redis" / "replay-0").exists(), "no server of its own is started"

        again = local_run("--resume", run_dir=run.run_dir, job=run.run_dir / "job.yaml", environment=login)
        log = run.run_dir / "logs" / "replay-0.log"
        again.until(lambda: "restored in" in log.read_text(), 60, "what the first one has stored")
        assert again.status("replay-0")["items"] >= 500
        assert again.interrupt() == 130
        secret = [file for file in run.run_dir.rglob("*") if file.is_file() and PASSWORD.encode() in file.read_bytes()]
        assert not secret, "the password is in no file"
        assert PASSWORD not in run.output + again.output

"""A run with two replay shards, one of which is killed: the actors go on with the other, and every chunk counts once."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable

import pytest

from tests.support.local_run import ENDLESS, LocalRun

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]
TWO_SHARDS = ["--set", "spec.replay.shards=2", "--set", "spec.actors.replicas=2"]


def accepted(run: LocalRun, name: str) -> int:
    """Transitions that the shards' ledgers have of that actor's present life."""
    ledgers = [run.final(f"replay-{shard}")["accepted"].get(name) for shard in range(2)]
    return sum(ledger["transitions"] for ledger in ledgers if ledger is not None)


@pytest.mark.parametrize("number", [0, 1])
def test_a_killed_shard_comes_back_and_every_chunk_counts_once(local_run: Callable[..., LocalRun], number: int) -> None:
    run = local_run(*ENDLESS, *TWO_SHARDS)
    run.until_learning(50)
    killed, other = f"replay-{number}", f"replay-{1 - number}"
    run.until(lambda: run.status(killed).get("inserted_total", 0) > 500, 60, "experience in both shards")
    before = run.status(killed)["inserted_total"]
    pid = run.kill(killed)
    inserted = run.status(other)["inserted_total"]
    run.until(lambda: run.status(other)["inserted_total"] > inserted, 60, "the actors go on with the other shard")
    run.until(lambda: run.announced(killed).get("pid") not in (None, pid), 60, "the shard is back")
    run.until(lambda: run.status(killed).get("inserted_total", 0) > before, 60, "the shard is given new experience")
    run.until_learning(run.status("learner")["updates"] + 100)
    assert run.interrupt() == 130
    for name in ("actor-0", "actor-1"):
        actor = run.final(name)
        assert actor["produced"] == actor["acknowledged"] + actor["unacknowledged"] + sum(actor["dropped"].values())
        assert actor["acknowledged"] <= accepted(run, name) <= actor["acknowledged"] + actor["unacknowledged"]
    inserted_total = sum(run.final(f"replay-{shard}")["inserted_total"] for shard in range(2))
    assert inserted_total == sum(accepted(run, name) for name in ("actor-0", "actor-1"))


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
    before = run.status("learner")["updates"]
    run.until_learning(before + 200)
    run.until(lambda: run.status("replay-0").get("state") == "serving", 60, "the empty shard is filled again")
    batches = run.status("replay-0")["batches_total"]
    run.until(lambda: run.status("replay-0").get("batches_total", 0) > batches + 50, 60, "it is drawn from again")
    run.until_learning(run.status("learner")["updates"] + 200)
    assert run.status("learner")["standstill"] == ""
    assert run.reason("Progressing") == "LearnerAdvancing"
    assert run.interrupt() == 130

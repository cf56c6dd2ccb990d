"""`rljob run` as its user meets it: real processes, a real Redis, faults in the middle of training."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

import psutil
import pytest
from rljob.checkpoints.files import stored
from rljob.checkpoints.names import order

from tests.support.local_run import ENDLESS, LocalRun, assert_nothing_was_lost
from tests.support.paths import EXAMPLES

CARTPOLE = EXAMPLES / "cartpole-apex.yaml"
pytestmark = pytest.mark.timeout(1000)


SOONER = ("successPolicy.targetReturn.value=120", "evaluator.triggerReturn=80", "evaluator.episodes=20")
"""Changes of the example, whose own target `benchmarks/time_to_solve.py` trains to."""


def test_cartpole_reaches_its_target_and_leaves_a_whole_run_folder(local_run: Callable[..., LocalRun]) -> None:
    run = local_run(*(word for change in SOONER for word in ("--set", f"spec.{change}")))
    assert run.finish(900) == 0, run.output + run.logs()
    outcome = json.loads((run.run_dir / "outcome.json").read_text())
    assert (outcome["state"], outcome["reason"]) == ("Complete", "TargetReturnReached")
    assert "rljob eval" in run.output.splitlines()[-1]
    assert list((run.run_dir / "tensorboard").iterdir())
    assert (run.run_dir / "metrics.jsonl").stat().st_size > 0
    report = (run.run_dir / "report.html").read_text()
    assert "cartpole" in report
    best = run.run_dir / "checkpoints" / "best"
    assert best.is_dir()


@pytest.mark.parametrize("names", [("replay-0", "learner"), ("actor-0",)], ids=" then ".join)
def test_a_killed_role_comes_back_and_training_goes_on(
    local_run: Callable[..., LocalRun], names: tuple[str, ...]
) -> None:
    run = local_run(*ENDLESS, "--set", "spec.checkpoint.intervalSeconds=2")
    run.until_learning(50)
    for name in names:
        if name == "learner":
            run.until(lambda: run.status("learner").get("checkpoint", {}).get("state") == "Valid", 60, "a checkpoint")
        before = run.status("replay-0")["inserted_total"]
        pid = run.kill(name)
        run.until(lambda name=name, pid=pid: run.announced(name).get("pid") not in (None, pid), 60, f"{name} back")
        run.until(lambda least=before: run.status("replay-0").get("inserted_total", 0) > least, 60, "new experience")
        updates = run.until(lambda: run.status("learner").get("updates"), 60, "the learner's status")
        run.until_learning(updates + 50)
    assert run.interrupt() == 130
    assert_nothing_was_lost(run, "actor-0")
    if "actor-0" not in names:
        ledger = run.final("replay-0")
        assert ledger["inserted_total"] == ledger["accepted"]["actor-0"]["transitions"], (
            "one incarnation made all of it"
        )


def test_training_goes_on_without_redis_and_is_durable_again(local_run: Callable[..., LocalRun]) -> None:
    run = local_run(*ENDLESS)
    run.until_learning(50)
    assert run.status("replay-0")["durable"] is True
    servers = [
        child
        for child in psutil.Process(int(run.announced("replay-0")["pid"])).children()
        if "server" in " ".join(child.cmdline()[:1])
    ]
    assert len(servers) == 1
    updates = run.status("learner")["updates"]
    servers[0].send_signal(signal.SIGKILL)
    # The server is back within a second or two, so "not durable" may be over before the test has looked; the count stays.
    run.until(lambda: run.status("replay-0").get("redis", {}).get("failures_total", 0) > 0, 60, "noticed")
    run.until_learning(updates + 100)
    run.until(lambda: run.status("replay-0").get("durable") is True, 60, "durable again")
    assert run.status("replay-0")["redis"]["lag_chunks"] < 100
    assert run.interrupt() == 130


def test_ctrl_c_then_the_printed_command_goes_on_where_it_stopped(local_run: Callable[..., LocalRun]) -> None:
    run = local_run(*ENDLESS)
    run.until_learning(100)
    assert run.interrupt() == 130
    last = run.output.splitlines()[-1]
    assert last.startswith("resume: rljob run ")
    assert "Traceback" not in run.output
    assert not any(os.path.exists(f"/proc/{run.announced(name)['pid']}") for name in ("actor-0", "learner", "replay-0"))
    newest = order(stored(run.run_dir / "checkpoints")[0].name)
    assert newest is not None
    stopped_at = newest.updates
    assert stopped_at >= 100
    again = local_run("--resume", "--max-seconds", "30", run_dir=run.run_dir, job=run.run_dir / "job.yaml")
    first = again.until(lambda: again.status("learner").get("updates"), 60, "the resumed learner")
    assert first >= stopped_at
    again.until_learning(stopped_at + 50)
    assert again.status("replay-0")["inserted_total"] > 0
    assert again.finish() == 0
    assert json.loads((run.run_dir / "outcome.json").read_text())["reason"] == "MaxSecondsReached"


def test_every_role_tells_how_it_is(local_run: Callable[..., LocalRun]) -> None:
    """And where no accelerator is asked for and none is there, no role says a word of it."""
    run = local_run(*ENDLESS, environment={"CUDA_VISIBLE_DEVICES": ""})
    run.until_learning(50)
    for name, metric in [
        ("actor-0", "rljob_env_steps_total"),
        ("replay-0", "rljob_replay_items"),
        ("learner", "rljob_learner_queue_depth_batches"),
    ]:
        assert metric in run.page(name, "/metrics")
        assert run.page(name, "/healthz")
        assert run.page(name, "/readyz")
    # A share of time is not told before there is a window to take it over.
    known = "learner_wait_fraction"
    status = run.until(lambda: (s := run.status("learner")).get(known) is not None and s, 60, "figures of a window")
    assert 0 <= status[known] <= 1
    assert status["queue_bound_batches"] > 0
    assert status["device"] == "cpu"
    assert run.interrupt() == 130
    assert "accelerator" not in run.output
    assert "WARNING" not in (run.run_dir / "logs" / "learner.log").read_text()


def test_two_shards_and_two_actors_count_every_step_once(local_run: Callable[..., LocalRun]) -> None:
    run = local_run(*ENDLESS, "--set", "spec.replay.shards=2", "--set", "spec.actors.replicas=2")
    run.until_learning(300)
    assert run.interrupt() == 130
    actors = [json.loads((run.run_dir / "roles" / f"actor-{k}.final.json").read_text()) for k in range(2)]
    shards = [json.loads((run.run_dir / "roles" / f"replay-{k}.final.json").read_text()) for k in range(2)]
    assert all(shard["items"] > 0 for shard in shards), "both shards hold experience"
    assert sum(shard["inserted_total"] for shard in shards) == sum(actor["acknowledged"] for actor in actors)
    counted = max(shard["steps_total"] for shard in shards)
    assert counted == sum(actor["steps"] for actor in actors), "the last heartbeat comes with the goodbye"


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("spec.environment.id=ALE/Pnog-v5", "Pong"),
        ("spec.environment.id=no_such_module:make", "no_such_module"),
        ("spec.replay.capacity=90000000000", "available"),
        ("spec.actors.replicsa=2", "replicas"),
    ],
)
def test_what_can_not_run_says_so_before_anything_starts(
    local_run: Callable[..., LocalRun], override: str, words: str
) -> None:
    run = local_run("--set", override, "--set", "spec.successPolicy.rawFrames=1000000")
    assert run.finish(60) == 2
    assert words in run.output
    assert "Traceback" not in run.output
    assert not (run.run_dir / "logs").exists()


def test_a_job_of_unrolls_runs_without_a_replay_service(local_run: Callable[..., LocalRun]) -> None:
    run = local_run(*ENDLESS, job=EXAMPLES / "cartpole-impala.yaml")
    run.until_learning(30)
    run.until(lambda: "entropy" in run.status("learner"), 60, "a window of figures")
    status = run.status("learner")
    assert "replay" not in status
    assert status["queue"]["learned"] > 0
    assert run.interrupt() == 130
    assert {path.stem for path in (run.run_dir / "logs").iterdir() if path.stat().st_size} >= {"learner", "actor-0"}
    assert not (run.run_dir / "logs" / "replay-0.log").exists()
    report = (run.run_dir / "report.html").read_text()
    assert "Unrolls a second" in report
    records = [json.loads(line) for line in (run.run_dir / "metrics.jsonl").read_text().splitlines()]
    assert any("entropy" in record and "queue/learned" in record for record in records)

"""`rljob run` as its user meets it: real processes, faults in the middle of training, a controller that is killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
from rljob.checkpoints.files import stored
from rljob.checkpoints.names import order
from rljob_operator.local.job_view import running_members
from rljob_operator.local.run_folder import ProcessIdentity

from tests.support.local_run import ENDLESS, LocalRun, assert_nothing_was_lost
from tests.support.paths import EXAMPLES, ROOT
from tests.support.waiting import eventually, known

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
    assert "cartpole" in (run.run_dir / "report.html").read_text()
    best = run.run_dir / "checkpoints" / "best"
    assert best.is_dir()


def test_training_survives_kills_and_goes_on_after_ctrl_c_where_it_stopped(local_run: Callable[..., LocalRun]) -> None:
    """Two shards and two actors, of which a Redis, a shard and the learner are killed; and an actor in the resumed run."""
    members = ("--set", "spec.replay.shards=2", "--set", "spec.actors.replicas=2")
    run = local_run(
        *ENDLESS, *members, "--set", "spec.checkpoint.intervalSeconds=2", environment={"CUDA_VISIBLE_DEVICES": ""}
    )
    run.until_learning(50)
    assert_every_role_tells_how_it_is(run)
    assert_training_goes_on_without_redis(run)
    for name in ("replay-0", "learner"):
        run.until(lambda: run.status("learner").get("checkpoint", {}).get("state") == "Valid", 60, "a checkpoint")
        assert_a_killed_role_comes_back(run, name)
    assert run.interrupt() == 130
    assert run.output.splitlines()[-1].startswith("resume: rljob run ")
    assert "Traceback" not in run.output
    assert "accelerator" not in run.output, "none was asked for"
    roles = ("learner", "actor-0", "actor-1", "replay-0", "replay-1")
    assert not any(os.path.exists(f"/proc/{run.announced(name)['pid']}") for name in roles)
    assert_nothing_was_lost(run, "actor-0", "actor-1", one_life=True)
    played = sum(run.final(f"actor-{number}")["steps"] for number in range(2))
    counted = max(run.final(f"replay-{number}")["steps_total"] for number in range(2))
    assert counted == played, "the last heartbeat comes with the goodbye"

    newest = known(order(stored(run.run_dir / "checkpoints")[0].name))
    assert newest.updates >= 100
    again = local_run("--resume", run_dir=run.run_dir, job=run.run_dir / "job.yaml")
    assert again.until(lambda: again.status("learner").get("updates"), 60, "the resumed learner") >= newest.updates
    again.until_learning(newest.updates + 50)
    assert_a_killed_role_comes_back(again, "actor-0")
    assert again.interrupt() == 130
    assert_nothing_was_lost(again, "actor-0", "actor-1")


def assert_every_role_tells_how_it_is(run: LocalRun) -> None:
    """And where no accelerator is asked for and none is there, no role says a word of it."""
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
    assert "WARNING" not in (run.run_dir / "logs" / "learner.log").read_text()


def assert_training_goes_on_without_redis(run: LocalRun) -> None:
    assert run.status("replay-0")["durable"] is True
    children = psutil.Process(int(run.announced("replay-0")["pid"])).children()
    (server,) = (child for child in children if "server" in " ".join(child.cmdline()[:1]))
    updates = run.status("learner")["updates"]
    server.send_signal(signal.SIGKILL)
    # The server is back within a second or two, so "not durable" may be over before the test has looked; the count stays.
    run.until(lambda: run.status("replay-0").get("redis", {}).get("failures_total", 0) > 0, 60, "noticed")
    run.until_learning(updates + 100)
    run.until(lambda: run.status("replay-0").get("durable") is True, 60, "durable again")
    assert run.status("replay-0")["redis"]["lag_chunks"] < 100


def assert_a_killed_role_comes_back(run: LocalRun, name: str) -> None:
    """And then there is new experience, and it is learned from."""
    before = run.until(lambda: run.status("replay-0").get("inserted_total"), 60, "a shard's status")
    pid = run.kill(name)
    run.until(lambda: run.announced(name).get("pid") not in (None, pid), 60, f"{name} back")
    run.until(lambda: run.status("replay-0").get("inserted_total", 0) > before, 60, "new experience")
    run.until_learning(run.until(lambda: run.status("learner").get("updates"), 60, "the learner's status") + 50)


def test_a_killed_controller_leaves_nothing_and_the_next_goes_on(local_run: Callable[..., LocalRun]) -> None:
    """The next is killed, too, and the verbs say that there is none."""
    run = local_run(*ENDLESS)
    run.until_learning(50)
    run.until(lambda: run.reason("Ready") == "Running", 60, "Running")
    before = running_members(run.run_dir)
    assert set(before) == {"replay-0", "learner", "actor-0"}

    status, updates = run.job_status, run.status("learner")["updates"]
    os.kill(before["replay-0"], signal.SIGSTOP)  # all may have left before the next controller has begun to look
    run.process.kill()
    run.process.wait()
    second = local_run("--resume", run_dir=run.run_dir, job=run.run_dir / "job.yaml")

    def all_are_others() -> bool:
        now = running_members(run.run_dir)
        return set(now) == set(before) and not set(now.values()) & set(before.values())

    leaving = "processes of the previous controller are ending: "
    second.until(lambda: leaving in second.output, 60, "a look at what is left")
    os.kill(before["replay-0"], signal.SIGCONT)
    second.until(all_are_others, 90, "the roles of the next controller")
    second.until_learning(updates)
    fork_server = known(ProcessIdentity.of(psutil.Process(running_members(run.run_dir)["learner"]).ppid()))
    inserted = second.until(lambda: second.status("replay-0").get("inserted_total"), 60, "a replay")
    second.until(lambda: second.status("replay-0").get("inserted_total", 0) > inserted + 500, 60, "new experience")
    assert "resumed from" in (run.run_dir / "logs" / "learner.log").read_text(), "it had saved itself"
    assert (second.job_status.start_time, second.job_status.restarts) == (status.start_time, status.restarts)
    second.process.kill()
    second.process.wait()
    eventually(lambda: not running_members(run.run_dir), "all have left", 60)
    eventually(lambda: not fork_server.alive, "the process that has started them has left", 60)
    assert_nothing_was_lost(run, "actor-0")
    run.answer("get", str(run.run_dir), said="Lost")
    code, printed = run.verb("checkpoint", str(run.run_dir))
    assert (code, "has no controller" in printed, "--resume" in printed) == (2, True, True)
    assert "nothing runs" in run.verb("stop", str(run.run_dir))[1]


RLJOB = (sys.executable, "-m", "rljob_operator")
CURVE = ROOT / "tests" / "data" / "diverging" / "cartpole-apex-seed-2.jsonl"


def started(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*RLJOB, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_verb_ends_without_a_word() -> None:
    verb = started("why", "--rules", str(EXAMPLES / "cartpole-apex.yaml"), str(CURVE))
    verb.stdout.close()
    assert (verb.stderr.read(), verb.wait(60)) == ("", 1)


def test_a_run_goes_on_to_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run = started("run", str(EXAMPLES / "cartpole-ppo.yaml"), "--run-dir", str(folder), "--max-seconds", "5")
    assert run.stdout.readline() == f"run folder: {folder}\n"
    run.stdout.close()
    assert run.stderr.read() == "rljob: the output was closed; the run continues (rljob get shows it)\n"
    assert run.wait(120) in (0, 1), "1 where it made no step in that time"
    assert json.loads((folder / "outcome.json").read_text())["reason"] == "MaxSecondsReached"

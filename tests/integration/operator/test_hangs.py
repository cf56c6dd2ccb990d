"""Members that do not answer: named, back when they answer again, replaced when they do not; and what is no hang."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rljob_operator.local.job_view import running_members

from tests.support import slow_game
from tests.support.local_run import ENDLESS, LocalRun
from tests.support.paths import IMPORTABLE

pytestmark = pytest.mark.long


ONE_ACTOR = ("--set", "spec.autoscaling.mode=Disabled", "--set", "spec.actors.replicas=1")


@pytest.fixture
def started(local_run: Callable[..., LocalRun]) -> Callable[..., LocalRun]:
    """Starts a run that trains, and leaves the processor to others meanwhile."""

    def start(prelude: str = "") -> LocalRun:
        run = local_run(*ENDLESS, *ONE_ACTOR, job=slow_game.JOB, environment=IMPORTABLE, prelude=prelude)
        run.until_learning()
        run.until(lambda: run.job_status.state == "Running", 60, "Running")
        return run

    return start


def says(run: LocalRun, word: str) -> bool:
    condition = run.job_status.condition("Ready")
    return condition is not None and condition.reason == "Degraded" and word in condition.message


def test_a_member_that_is_stopped_is_named_until_it_goes_on(started: Callable[..., LocalRun]) -> None:
    run = started()
    for name in ("replay-0", "learner", "actor-0"):
        before = run.announced(name)
        os.kill(int(before["pid"]), signal.SIGSTOP)
        run.until(lambda name=name: says(run, f"{name} does not answer"), 40, f"Degraded names {name}")
        os.kill(int(before["pid"]), signal.SIGCONT)
        run.until(lambda: run.job_status.state == "Running", 60, f"Running again after {name}")
        assert run.announced(name) == before, "it is the same process"
    assert run.job_status.failures == []
    updates = run.until_learning(1)
    run.until(lambda: run.status("learner").get("updates", 0) > updates + 20, 60, "training goes on")


def test_a_member_that_stays_stopped_is_replaced_and_training_goes_on(started: Callable[..., LocalRun]) -> None:
    run = started("import rljob_operator.core.rules.hangs as hangs; hangs.REPLACED_SECONDS = 7.0")
    for count, name in enumerate(("actor-0", "replay-0", "learner"), 1):
        run.until(lambda: run.job_status.state == "Running", 60, "Running")
        pid = running_members(run.run_dir)[name]
        os.kill(pid, signal.SIGSTOP)
        run.until(
            lambda name=name, pid=pid: running_members(run.run_dir).get(name, pid) != pid and run.status(name),
            60,
            f"another {name}",
        )
        failure = run.until(lambda count=count: run.job_status.failures[count - 1 :], 20, "the failure")[0]
        assert (failure.pod_name, failure.reason, failure.action) == (name, "Hung", "RestartRole")
        assert "stopped answering" in failure.message
        updates = run.status("learner").get("updates", 0)
        run.until(lambda least=updates: run.status("learner").get("updates", 0) > least + 20, 90, "training goes on")
    hung = [
        failure.pod_name for failure in run.job_status.failures
    ]  # on a busy machine more than those that were stopped
    assert run.job_status.restarts.counted == sum(name != "actor-0" for name in hung), "actors never count"


HANG_AT_START = """
import os, pathlib, signal
import rljob_operator.core.rules.hangs as hangs
from rljob_operator.local.process import RoleProcess
hangs.START_NAMED_SECONDS, hangs.START_REPLACED_SECONDS = 15.0, 20.0
start = RoleProcess.start

def start_and_hang(process):
    running = process.pid is not None
    start(process)
    marker = pathlib.Path({marker!r}) / process.name
    if not running and marker.exists():
        marker.unlink()
        os.kill(process.pid, signal.SIGSTOP)

RoleProcess.start = start_and_hang
"""


def test_a_member_that_hangs_before_it_announces_itself_is_named_and_replaced(
    started: Callable[..., LocalRun], tmp_path: Path
) -> None:
    """The next life of the actor is stopped as soon as it was started: it has no address at which it could be asked."""
    run = started(HANG_AT_START.format(marker=str(tmp_path)))
    (tmp_path / "actor-0").touch()
    os.kill(running_members(run.run_dir)["actor-0"], signal.SIGKILL)
    run.until(lambda: not (tmp_path / "actor-0").exists(), 60, "the next life has hung")
    run.until(lambda: "actor-0 is still starting" in str(run.job_status.condition("Ready")), 120, "it is named")
    failure = run.until(
        lambda: [failure for failure in run.job_status.failures if failure.reason == "Hung"], 120, "the failure"
    )[0]
    assert (failure.pod_name, failure.action) == ("actor-0", "RestartRole")
    assert "did not announce itself" in failure.message
    run.until(lambda: run.job_status.state == "Running" and run.status("actor-0"), 120, "another actor plays")


def test_a_controller_that_stood_still_itself_blames_nobody(started: Callable[..., LocalRun]) -> None:
    """As when a terminal is stopped with Ctrl-Z, and when a machine sleeps."""
    prelude = "import rljob_operator.core.rules.hangs as hangs; hangs.REPLACED_SECONDS = 5.0; hangs.NAMED_SECONDS = 4.5"
    run = started(prelude)
    members = running_members(run.run_dir)
    for _ in range(2):
        run.process.send_signal(signal.SIGSTOP)
        time.sleep(6.0)  # longer than REPLACED_SECONDS
        run.process.send_signal(signal.SIGCONT)
        time.sleep(3.0)  # longer than the probes' period and a turn: what it would do wrong it would have done
    assert running_members(run.run_dir) == members
    assert run.job_status.failures == []

"""What a run's controller has started ends with it, in good order; and the run goes on with the next."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from rljob_operator.local.job_view import running_members

from tests.support.local_run import ENDLESS, LocalRun, assert_nothing_was_lost
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(400)


def test_a_killed_controller_leaves_nothing_and_the_next_goes_on(local_run: Callable[..., LocalRun]) -> None:
    run = local_run(*ENDLESS)
    run.until_learning(50)
    run.until(lambda: run.reason("Ready") == "Running", 60, "Running")
    before = running_members(run.run_dir)
    assert set(before) == {"replay-0", "learner", "actor-0"}

    second = local_run("--resume", run_dir=run.run_dir, job=run.run_dir / "job.yaml")
    assert second.finish(60) == 2
    assert f"another controller (pid {run.process.pid})" in second.output
    assert running_members(run.run_dir) == before, "the refused one has touched nothing"

    status, updates = run.job_status, run.status("learner")["updates"]
    os.kill(before["replay-0"], signal.SIGSTOP)  # all may have left before the next controller has begun to look
    run.process.kill()
    run.process.wait()
    third = local_run("--resume", run_dir=run.run_dir, job=run.run_dir / "job.yaml")

    def all_are_others() -> bool:
        now = running_members(run.run_dir)
        return set(now) == set(before) and not set(now.values()) & set(before.values())

    leaving = "what the controller before has left is ending: "
    third.until(lambda: leaving in third.output, 60, "a look at what is left")
    os.kill(before["replay-0"], signal.SIGCONT)
    third.until(all_are_others, 90, "the roles of the next controller")
    third.until_learning(updates)
    inserted = third.until(lambda: third.status("replay-0").get("inserted_total"), 60, "a replay")
    third.until(lambda: third.status("replay-0").get("inserted_total", 0) > inserted + 500, 60, "new experience")
    assert "resumed from" in (run.run_dir / "logs" / "learner.log").read_text(), "it had saved itself"
    assert third.job_status.start_time == status.start_time
    assert third.job_status.restarts == status.restarts
    assert third.interrupt() == 130
    assert running_members(run.run_dir) == {}
    assert_nothing_was_lost(run, "actor-0")


def test_verbs_say_that_there_is_no_controller(local_run: Callable[..., LocalRun]) -> None:
    run = local_run(*ENDLESS)
    run.until_learning(50)
    run.process.kill()
    run.process.wait()
    eventually(lambda: not running_members(run.run_dir), "all have left", 60)
    code, printed = run.verb("get", str(run.run_dir))
    assert (code, "Lost" in printed) == (0, True)
    code, printed = run.verb("checkpoint", str(run.run_dir))
    assert (code, "no controller has" in printed, "--resume" in printed) == (2, True, True)
    assert "nothing of it runs" in run.verb("stop", str(run.run_dir))[1]
    assert list((run.run_dir / "checkpoints").glob("*-step-*")), "the learner saved itself"

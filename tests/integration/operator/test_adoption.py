"""A run outlives its controller: kill -9, the next one, a second one beside the first, and no one at all."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from rljob_operator.local.job_view import running_members

from tests.support.local_run import ENDLESS, LocalRun, assert_nothing_was_lost

pytestmark = pytest.mark.timeout(400)


def test_a_controller_that_was_killed_is_replaced_and_nothing_is_started_twice(
    local_run: Callable[..., LocalRun],
) -> None:
    run = local_run(*ENDLESS)
    run.until_learning(50)
    run.until(lambda: run.reason("Ready") == "Running", 60, "Running")
    before = running_members(run.run_dir)
    assert set(before) == {"replay-0", "learner", "actor-0"}

    second = local_run("--resume", run_dir=run.run_dir, job=run.run_dir / "job.yaml")
    assert second.finish(60) == 2
    assert f"another controller (pid {run.process.pid})" in second.output
    assert running_members(run.run_dir) == before, "the refused one has touched nothing"

    run.process.kill()
    run.process.wait()
    code, printed = run.verb("get", str(run.run_dir))
    assert (code, "Unattended" in printed) == (0, True)
    code, printed = run.verb("checkpoint", str(run.run_dir))
    assert (code, "no controller has" in printed, "--resume" in printed) == (2, True, True)
    status = run.job_status

    third = local_run("--resume", run_dir=run.run_dir, job=run.run_dir / "job.yaml")
    third.until(lambda: "adopted: replay-0, learner, actor-0" in third.output, 60, "adoption")
    updates = third.status("learner")["updates"]
    third.until_learning(updates + 100)
    assert running_members(run.run_dir) == before, "the same processes"
    assert third.job_status.start_time == status.start_time
    assert third.job_status.restarts == status.restarts

    os.kill(before["actor-0"], signal.SIGKILL)
    third.until(lambda: running_members(run.run_dir).get("actor-0") not in (None, before["actor-0"]), 60, "a new actor")
    failure = third.until(lambda: third.job_status.failures, 60, "the failure in the status")[-1]
    assert (failure.pod_name, failure.exit_code) == ("actor-0", None), "not our child: its code is unknown, not guessed"
    inserted = third.status("replay-0")["inserted_total"]
    third.until(lambda: third.status("replay-0").get("inserted_total", 0) > inserted + 500, 60, "new experience")
    assert third.interrupt() == 130
    assert running_members(run.run_dir) == {}
    assert_nothing_was_lost(run, "actor-0")


def test_what_a_dead_controller_left_is_ended_by_stop(local_run: Callable[..., LocalRun]) -> None:
    run = local_run(*ENDLESS)
    run.until_learning(50)
    run.process.kill()
    run.process.wait()
    assert len(running_members(run.run_dir)) == 3
    code, printed = run.verb("stop", str(run.run_dir))
    assert code == 0, printed
    assert running_members(run.run_dir) == {}
    assert list((run.run_dir / "checkpoints").glob("*-step-*")), "the learner saved itself"
    assert run.job_status.state == "SessionEnded"
    assert_nothing_was_lost(run, "actor-0")
    assert "nothing of it runs" in run.verb("stop", str(run.run_dir))[1]

"""Before an operator is uninstalled: its jobs are saved, and nothing of its own keeps a pod when it is gone."""

from __future__ import annotations

import re

from tests.e2e.cluster import LONG_SECONDS, Namespace, pause
from tests.e2e.jobs import checkpoint_claim, endless
from tests.e2e.operator_process import OperatorProcess
from tests.support.waiting import eventually

STORAGE = {"storage": {"persistentVolumeClaim": {"claimName": "checkpoints"}}}


def test_released_jobs_leave_nothing_and_go_on_under_the_next_operator(
    namespace: Namespace, operator: OperatorProcess
) -> None:
    namespace.apply(checkpoint_claim(), endless("stored", checkpoint=STORAGE), endless("unstored"))
    for job in ("stored", "unstored"):
        namespace.wait_for(job, "Ready", "True")
        namespace.wait_updates(job)

    refused = operator.release()
    assert refused.returncode == 1
    assert "holds the Lease and renews it: stop that operator first" in refused.stderr
    operator.stop()
    told = operator.release("--dry-run")
    assert told.returncode == 3, told.stderr
    rows = [line.split()[1:4:2] for line in told.stdout.splitlines()]
    assert rows == [["NAME", "RUNNING"], ["stored", "2"], ["unstored", "2"]], told.stdout

    done = operator.release()
    assert done.returncode == 0, done.stdout + done.stderr
    saved = re.search(r"stored .* released; checkpoint of step ([\d,]+)", done.stdout)
    assert saved is not None, done.stdout
    assert re.search(r"unstored .* released; no checkpoint outlives it", done.stdout), done.stdout
    for job in (
        "stored",
        "unstored",
    ):  # nothing keeps them any more; that they have ended is for their kubelets to tell
        eventually(lambda job=job: not namespace.all_pods(job), lambda job=job: str(namespace.all_pods(job)), 20, pause)
    step = namespace.job_status("stored")["checkpoint"]["step"]
    assert step == int(saved[1].replace(",", ""))
    assert namespace.condition("stored", "Suspended")["reason"] == "OperatorReleased"
    nothing = operator.release("--dry-run")
    assert nothing.returncode == 0, nothing.stderr

    operator.start()
    resumed = eventually(
        lambda: re.search(r"resumed from \S+: update (\d+), epoch (\d+)", namespace.log("stored", "learner")),
        lambda: namespace.log("stored", "learner"),
        LONG_SECONDS,
        pause,
    )
    assert int(resumed[1]) == step
    namespace.wait_updates("stored", more_than=step)
    operator.stop()
    operator.release()
    namespace.delete_jobs()  # with no operator there, nothing stays Terminating
    operator.start()

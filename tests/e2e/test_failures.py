"""A learner that is killed goes on from its checkpoint, and an operator that is killed has the next one go on."""

from __future__ import annotations

import re

from tests.e2e.cluster import LONG_SECONDS, Namespace, checkpoint_claim, endless, pause
from tests.e2e.operator_process import OperatorProcess
from tests.support.waiting import eventually

STORAGE = {"intervalSeconds": 2, "storage": {"persistentVolumeClaim": {"claimName": "checkpoints"}}}


def test_a_killed_learner_counts_once_and_resumes_from_its_checkpoint(namespace: Namespace) -> None:
    namespace.apply(checkpoint_claim(), endless("killed", checkpoint=STORAGE))
    namespace.wait_updates("killed")
    namespace.wait_for("killed", "CheckpointValid", "True", "Verified")
    step = namespace.job_status("killed")["checkpoint"]["step"]
    before = namespace.uids("killed")
    epoch = namespace.learner_figures("killed")["epoch"]

    namespace.kill_worker("killed", "learner")
    eventually(
        lambda: namespace.uids("killed").get("learner", before["learner"]) != before["learner"],
        "no pod follows the learner's",
        LONG_SECONDS,
        pause,
    )
    resumed = eventually(
        lambda: re.search(r"resumed from \S+: update (\d+), epoch (\d+)", namespace.log("killed", "learner")),
        lambda: namespace.log("killed", "learner"),
        LONG_SECONDS,
        pause,
    )
    assert int(resumed[1]) >= step
    assert int(resumed[2]) == epoch + 1
    namespace.wait_updates("killed", more_than=int(resumed[1]))
    namespace.wait_for("killed", "Ready", "True")

    status = namespace.job_status("killed")
    assert status["restarts"] == {"counted": 1, "ignored": 0}
    assert [(each["role"], each["exitCode"]) for each in status["failures"]] == [("Learner", 137)]
    assert namespace.uids("killed")["actor-0"] == before["actor-0"]


def test_a_second_operator_takes_over_when_the_first_one_is_killed(
    namespace: Namespace, operator: OperatorProcess
) -> None:
    namespace.apply(endless("handed"))
    namespace.wait_for("handed", "Ready", "True")
    before = namespace.uids("handed")

    second = operator.start_candidate()
    operator.kill()
    operator.take_over(second)
    namespace.kubectl("delete", "pod", namespace.pods("handed")["actor-0"]["metadata"]["name"], "--wait=false")
    eventually(
        lambda: len(set(namespace.uids("handed").values()) - {before["actor-0"]}) == len(before),
        "the second operator replaces no actor",
        LONG_SECONDS,
        pause,
    )
    assert namespace.uids("handed")["learner"] == before["learner"]
    namespace.wait_for("handed", "Ready", "True")
    assert namespace.job_status("handed")["restarts"]["counted"] == 0


def test_a_job_that_is_deleted_while_no_operator_runs(namespace: Namespace, operator: OperatorProcess) -> None:
    namespace.apply(endless("orphaned"))
    namespace.wait_for("orphaned", "Ready", "True")
    operator.stop()

    namespace.kubectl("delete", "rljob", "orphaned", "--wait=false")
    namespace.wait_empty()
    operator.start()

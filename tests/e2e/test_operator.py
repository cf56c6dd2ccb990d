"""Operators that end in the middle of their work: the next one goes on, and the training is not disturbed."""

from __future__ import annotations

from tests.e2e.cluster import LONG_SECONDS, Namespace, pause
from tests.e2e.jobs import endless
from tests.e2e.operator_process import OperatorProcess
from tests.support.waiting import eventually


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

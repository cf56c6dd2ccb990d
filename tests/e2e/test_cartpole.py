"""The first thing that a user does: a job is applied, trains, is complete, and is deleted."""

from __future__ import annotations

from tests.e2e.cluster import LONG_SECONDS, Namespace, pause
from tests.e2e.jobs import cartpole
from tests.support.waiting import eventually


def test_cartpole_trains_to_complete_and_leaves_nothing(namespace: Namespace) -> None:
    namespace.apply(cartpole())
    namespace.kubectl("wait", "rljob/cartpole", "--for=condition=Complete", "--timeout=540s", seconds=560)

    status = namespace.job_status("cartpole")
    assert namespace.condition("cartpole", "Complete")["reason"] == "TargetReturnReached"
    assert namespace.condition("cartpole", "Ready")["reason"] == "Complete"
    assert float(status["progress"]["evalReturn"]) >= 475
    assert status["progress"]["learnerUpdates"] > 0
    assert status["checkpoint"]["digest"]
    assert (status["restarts"], status["actors"]["replicas"]) == ({"counted": 0, "ignored": 0}, 0)
    assert "completionTime" in status
    eventually(lambda: not namespace.all_pods("cartpole"), "pods outlive the job's end", LONG_SECONDS, pause)

    namespace.kubectl("delete", "rljob", "cartpole")
    namespace.wait_empty()

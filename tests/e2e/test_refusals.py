"""Jobs that can't run: each says why, in the words of what refused it; and one that is deleted while no operator runs."""

from tests.e2e.cluster import Namespace, endless, requests
from tests.e2e.operator_process import OperatorProcess


def test_an_image_that_nobody_has(namespace: Namespace) -> None:
    namespace.apply(endless("unpullable", image="registry.example.com/nobody/has-this:1"))

    waiting = namespace.wait_for("unpullable", "LearnerReady", "False", "ImagePullFailed")
    assert "registry.example.com/nobody/has-this:1" in waiting["message"]
    assert namespace.job_status("unpullable")["restarts"]["counted"] == 0


def test_a_learner_that_fits_no_node(namespace: Namespace) -> None:
    namespace.apply(endless("too-large", learner=requests(cpu="900")))

    assert "nodes are available" in namespace.wait_for("too-large", "LearnerReady", "False", "Unschedulable")["message"]
    assert namespace.job_status("too-large")["restarts"]["counted"] == 0


def test_a_job_that_is_deleted_while_no_operator_runs(namespace: Namespace, operator: OperatorProcess) -> None:
    namespace.apply(endless("orphaned"))
    namespace.wait_for("orphaned", "Ready", "True")
    operator.stop()

    namespace.kubectl("delete", "rljob", "orphaned", "--wait=false")
    namespace.wait_empty()
    operator.start()

"""Jobs that can't run for a reason that only a real cluster has: each says why, in the cluster's words.

What an API server refuses by itself is in `tests/cluster`.
"""

from __future__ import annotations

from tests.e2e.cluster import Namespace, endless, requests


def test_an_image_that_nobody_has(namespace: Namespace) -> None:
    namespace.apply(endless("unpullable", image="registry.example.com/nobody/has-this:1"))

    waiting = namespace.wait_for("unpullable", "LearnerReady", "False", "ImagePullFailed")
    assert "registry.example.com/nobody/has-this:1" in waiting["message"]
    assert namespace.job_status("unpullable")["restarts"]["counted"] == 0


def test_a_learner_that_fits_no_node(namespace: Namespace) -> None:
    namespace.apply(endless("too-large", learner=requests(cpu="900")))

    assert "nodes are available" in namespace.wait_for("too-large", "LearnerReady", "False", "Unschedulable")["message"]
    assert namespace.job_status("too-large")["restarts"]["counted"] == 0

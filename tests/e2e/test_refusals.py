"""Jobs that can't run: each says why, in the words of what refused it, and harms nothing that is not its own."""

from tests.e2e.cluster import LONG_SECONDS, Namespace, endless, pause, requests
from tests.support.waiting import eventually


def test_a_template_that_the_api_server_refuses(namespace: Namespace) -> None:
    template = {"spec": {"tolerations": [{"key": "spare", "operator": "Sometimes"}]}}
    namespace.apply(endless("template", learner={"podTemplate": template}))

    refused = namespace.wait_for("template", "Accepted", "False", "PodTemplateRejected")
    assert "Sometimes" in refused["message"]
    assert "spec.tolerations[0].operator" in refused["message"]
    assert "learner" not in namespace.pods("template"), "and nothing else is kept from coming up"

    namespace.suspend("template", learner={"podTemplate": None})  # a role changes in suspension alone
    namespace.patch("template", {"suspend": False})
    namespace.wait_for("template", "Accepted", "True", "Valid")
    eventually(lambda: "learner" in namespace.pods("template"), "mended, it has no learner", LONG_SECONDS, pause)


def test_a_service_of_somebody_else_is_left_alone(namespace: Namespace) -> None:
    ports = [{"name": "http", "port": 80}]
    namespace.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "taken"}, "spec": {"ports": ports}})
    before = namespace.get("service", "taken")
    try:
        namespace.apply(endless("taken"))

        assert "Service taken" in namespace.wait_for("taken", "Accepted", "False", "NameConflict")["message"]
        assert not namespace.all_pods("taken")
        namespace.kubectl("delete", "rljob", "taken")
        namespace.wait_empty()
        assert namespace.get("service", "taken") == before
    finally:
        namespace.kubectl("delete", "service", "taken", "--ignore-not-found")


def test_a_quota_holds_a_job_until_it_is_lifted(namespace: Namespace) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    namespace.apply(quota)
    eventually(
        lambda: (namespace.get("resourcequota", "none") or {}).get("status"), "the quota is not in force", LONG_SECONDS
    )
    try:
        namespace.apply(endless("held"))
        assert "exceeded quota: none" in namespace.wait_for("held", "Admitted", "False", "QuotaExceeded")["message"]
        assert not namespace.all_pods("held")
        assert namespace.job_status("held")["restarts"] == {"counted": 0, "ignored": 0}
    finally:
        namespace.kubectl("delete", "resourcequota", "none")

    namespace.wait_for("held", "Admitted", "True")
    namespace.wait_for("held", "Ready", "True")


def test_an_image_that_nobody_has(namespace: Namespace) -> None:
    namespace.apply(endless("unpullable", image="registry.example.com/nobody/has-this:1"))

    waiting = namespace.wait_for("unpullable", "LearnerReady", "False", "ImagePullFailed")
    assert "registry.example.com/nobody/has-this:1" in waiting["message"]
    assert namespace.job_status("unpullable")["restarts"]["counted"] == 0


def test_a_learner_that_fits_no_node(namespace: Namespace) -> None:
    namespace.apply(endless("too-large", learner=requests(cpu="900")))

    assert "nodes are available" in namespace.wait_for("too-large", "LearnerReady", "False", "Unschedulable")["message"]
    assert namespace.job_status("too-large")["restarts"]["counted"] == 0

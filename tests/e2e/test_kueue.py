"""Jobs in a queue of Kueue's that has quota for one of them. The tests follow each other."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.e2e.cluster import CHECKPOINTS, LONG_SECONDS, Namespace, Object, endless, pause, shared_claim
from tests.e2e.operator_process import operator_of
from tests.support.waiting import eventually

API = {"apiVersion": "kueue.x-k8s.io/v1beta2"}


def queue(name: str, cpu: str) -> Object:
    quotas = [{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": "64Gi"}]
    flavors = [{"name": name, "resources": quotas}]
    return {
        **API,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": flavors}],
        },
    }


def queued(name: str, priority: str = "", **spec: Any) -> Object:
    """Its core has a learner and an actor, of 50m each."""
    storage = {"persistentVolumeClaim": {"claimName": CHECKPOINTS, "subPath": name}}
    found = endless(name, checkpoint={"intervalSeconds": 3600, "storage": storage}, **spec)
    labels = {"queue-name": "team", **({"priority-class": priority} if priority else {})}
    found["metadata"]["labels"] = {f"kueue.x-k8s.io/{label}": value for label, value in labels.items()}
    return found


@pytest.fixture(scope="module")
def team(bare_namespace: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """A namespace with a LocalQueue, and an operator that asks Kueue."""
    space, name = bare_namespace, bare_namespace.name
    if space.get("crd", "workloads.kueue.x-k8s.io") is None:
        pytest.skip("the cluster has no Kueue")
    about = {**API, "metadata": {"name": name}}
    folder = tmp_path_factory.mktemp("operator")
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump({"kueue": {"enabled": True}}))
    try:
        space.apply(
            {**about, "kind": "ResourceFlavor"},
            {**about, "kind": "WorkloadPriorityClass", "value": 1000},
            queue(name, "190m"),
            {**API, "kind": "LocalQueue", "metadata": {"name": "team"}, "spec": {"clusterQueue": name}},
            shared_claim(),
        )
        with operator_of(space, folder / "log", f"--config={config}"):
            yield space
            space.delete_jobs()
    finally:
        kinds = "clusterqueue,resourceflavor,workloadpriorityclass"
        space.kubectl("delete", kinds, name, "--ignore-not-found", "--wait=false")


def test_a_second_job_waits_and_leaves_its_queue_when_it_is_deleted(team: Namespace) -> None:
    team.train(queued("first"))
    team.apply(queued("second"))
    team.wait_for("second", "Admitted", "False", "WaitingForQuota")
    assert team.get("workload", "second")
    assert not team.all_pods("second")
    team.kubectl("delete", "rljob", "second")
    eventually(lambda: team.get("workload", "second") is None, lambda: "its Workload stays", LONG_SECONDS, pause)


def test_actors_beyond_the_quota_wait_for_it(team: Namespace) -> None:
    team.patch("first", {"actors": {"replicas": 5}})
    team.wait_for("first", "ScalingLimited", "True", "QuotaLimited")
    assert len(team.pods("first", "actor")) == 1
    team.apply(queue(team.name, "300m"))
    team.wait_actors("first", 5)
    team.patch("first", {"actors": {"replicas": 1}})
    eventually(
        lambda: team.get("workload", "first.actors-0") is None,
        lambda: "the block stays",
        LONG_SECONDS,
        pause,
    )
    team.apply(queue(team.name, "190m"))


def test_one_of_higher_priority_evicts_the_first_which_goes_on_from_its_checkpoint(team: Namespace) -> None:
    team.apply(queued("urgent", team.name))
    team.wait_for("first", "Suspended", "True", "QuotaEvicted")
    assert not team.all_pods("first")
    saved = team.job_status("first")["checkpoint"]["step"]
    team.wait_for("urgent", "Ready", "True")
    team.kubectl("delete", "rljob", "urgent")
    team.wait_for("first", "Ready", "True")
    team.wait_updates("first", saved)
    status = team.job_status("first")
    assert (saved > 0, status["restarts"]) == (True, {"counted": 0, "ignored": 0})

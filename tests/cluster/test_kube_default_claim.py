"""Where a job's checkpoints are that names no place for them: on a claim wherever the cluster has volumes to give."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import RLJOBS, VOLUME_CLAIMS, Object

from tests.cluster.control_plane import ControlPlane
from tests.cluster.policies import set_quota
from tests.cluster.reconciling import BreakingClient, Kubelet, Run, bring_up, condition, started, status_of, written
from tests.support.waiting import eventually

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
STABLE = "storageclass.kubernetes.io/is-default-class"
BETA = "storageclass.beta.kubernetes.io/is-default-class"
PROBE = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


@contextmanager
def default_class(cluster: ControlPlane, namespace: str, annotation: str) -> Iterator[None]:
    """There is a default StorageClass, and the API server has heard of it."""
    about = {"name": "given", "annotations": {annotation: "true"}}
    cluster.create(CLASSES, {"metadata": about, "provisioner": "example.com/disks"})

    def is_given() -> bool:
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"generateName": "a-"}, "spec": PROBE}
        path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims?dryRun=All"
        return cluster.request("POST", path, claim)[1]["spec"].get("storageClassName") == "given"

    try:
        eventually(is_given, lambda: "the class is no default", 20.0, lambda: time.sleep(0.1))
        yield
    finally:
        cluster.request("DELETE", f"{CLASSES}/given")
        eventually(lambda: not is_given(), lambda: "the class stays", 20.0, lambda: time.sleep(0.1))


async def run_folder(kubelet: Kubelet) -> Object:
    """What the learner has its run folder on."""
    learner = await kubelet.pod("pong", "learner")
    (found,) = [each for each in learner["spec"]["volumes"] if each["name"] == "rljob-run"]
    return {name: value for name, value in found.items() if name != "name"}


async def claims(viewer: Client, namespace: str) -> dict[str, str]:
    found = (await viewer.list(VOLUME_CLAIMS, namespace)).items
    return {each["metadata"]["name"]: each["spec"]["resources"]["requests"]["storage"] for each in found}


@pytest.mark.parametrize("annotation", [STABLE, BETA])
async def test_a_job_that_is_created_suspended_gets_a_claim_when_it_is_resumed_and_keeps_it(
    cluster: ControlPlane,
    viewer: Client,
    client: BreakingClient,
    kubelet: Kubelet,
    run: Run,
    namespace: str,
    annotation: str,
) -> None:
    await run.begin(viewer, written(namespace, "pong", suspend=True))
    assert condition(await status_of(viewer, namespace, "pong"), "Suspended") == ("True", "UserRequested")
    assert not await claims(viewer, namespace), "nothing is made for a job that never ran"
    with default_class(cluster, namespace, annotation):
        await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": False}})
        await bring_up(run, viewer, kubelet, "pong")
    assert (await claims(viewer, namespace))["pong-learner"] == "4Gi"
    on_claim = {"persistentVolumeClaim": {"claimName": "pong-learner"}}
    assert await run_folder(kubelet) == on_claim
    await kubelet.end(await kubelet.pod("pong", "learner"), 1)
    again = Run(client, namespace)  # another operator, when there is no default class any more
    await again.settle(viewer, "pong")
    assert await run_folder(kubelet) == on_claim, "what was decided at the start stays"


async def test_where_no_class_is_the_default_the_job_runs_and_says_what_a_lost_pod_costs(
    cluster: ControlPlane, viewer: Client, kubelet: Kubelet, run: Run, namespace: str
) -> None:
    await started(run, viewer, kubelet, written(namespace, "pong", replay={"redis": {"persistence": {"mode": "None"}}}))
    assert await run_folder(kubelet) == {"emptyDir": {}}
    assert not await claims(viewer, namespace)
    with default_class(cluster, namespace, STABLE):
        await kubelet.end(await kubelet.pod("pong", "learner"), 1)
        await run.settle(viewer, "pong")
        assert await run_folder(kubelet) == {"emptyDir": {}}, "a job that runs is made as it was started"


async def test_a_namespace_that_allows_no_claim_still_runs_the_job(
    cluster: ControlPlane, viewer: Client, kubelet: Kubelet, run: Run, namespace: str
) -> None:
    set_quota(cluster, namespace, "requests.storage", most="1Gi", used=0)
    with default_class(cluster, namespace, STABLE):
        await started(
            run, viewer, kubelet, written(namespace, "pong", replay={"redis": {"persistence": {"mode": "None"}}})
        )
    assert await run_folder(kubelet) == {"emptyDir": {}}

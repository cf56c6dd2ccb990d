"""Where a job's checkpoints are that names no place for them: on a claim wherever the cluster has volumes to give."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import RLJOBS, VOLUME_CLAIMS, Object

from tests.cluster.control_plane import ControlPlane
from tests.cluster.reconciling import Kubelet, Run, bring_up, written
from tests.cluster.test_kube_reconcile import at_work, condition, status_of
from tests.support.waiting import eventually

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
STABLE = "storageclass.kubernetes.io/is-default-class"
BETA = "storageclass.beta.kubernetes.io/is-default-class"
PROBE = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


@contextmanager
def default_class(cluster: ControlPlane, namespace: str, annotation: str) -> Iterator[None]:
    """There is a default StorageClass, and the API server has heard of it."""
    about = {"name": "given", "annotations": {annotation: "true"}}
    code, answer = cluster.request("POST", CLASSES, {"metadata": about, "provisioner": "example.com/disks"})
    assert code == 201, answer

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
    (learner,) = (await kubelet.pods("pong"))["learner"]
    (found,) = [each for each in learner["spec"]["volumes"] if each["name"] == "rljob-run"]
    return {name: value for name, value in found.items() if name != "name"}


async def claims(viewer: Client, namespace: str) -> dict[str, str]:
    found = (await viewer.list(VOLUME_CLAIMS, namespace)).items
    return {each["metadata"]["name"]: each["spec"]["resources"]["requests"]["storage"] for each in found}


async def message(viewer: Client, namespace: str, kind: str) -> str:
    found = (await status_of(viewer, namespace, "pong"))["conditions"]
    return str(next(each["message"] for each in found if each["type"] == kind))


@pytest.mark.parametrize("annotation", [STABLE, BETA])
def test_a_job_that_is_created_suspended_gets_a_claim_when_it_is_resumed_and_keeps_it(
    cluster: ControlPlane, namespace: str, annotation: str
) -> None:
    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            run = Run(client, namespace)
            await viewer.create(RLJOBS, written(namespace, "pong", suspend=True))
            await run.settle(viewer, "pong")
            status = await status_of(viewer, namespace, "pong")
            assert condition(status, "Suspended") == ("True", "UserRequested")
            assert not await claims(viewer, namespace), "nothing is made for a job that never ran"
            with default_class(cluster, namespace, annotation):
                await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": False}})
                await bring_up(run, viewer, kubelet, "pong")
            assert (await claims(viewer, namespace))["pong-learner"] == "4Gi"
            on_claim = {"persistentVolumeClaim": {"claimName": "pong-learner"}}
            assert await run_folder(kubelet) == on_claim
            (learner,) = (await kubelet.pods("pong"))["learner"]
            await kubelet.end(learner, 1)
            again = Run(client, namespace)  # another operator, when there is no default class any more
            await again.settle(viewer, "pong")
            assert await run_folder(kubelet) == on_claim, "what was decided at the start stays"

    asyncio.run(story())


def test_where_no_class_is_the_default_the_job_runs_and_says_what_a_lost_pod_costs(
    cluster: ControlPlane, namespace: str
) -> None:
    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            run = Run(client, namespace)
            await viewer.create(RLJOBS, written(namespace, "pong", replay={"redis": {"persistence": {"mode": "None"}}}))
            await bring_up(run, viewer, kubelet, "pong")
            assert await run_folder(kubelet) == {"emptyDir": {}}
            assert not await claims(viewer, namespace)
            with default_class(cluster, namespace, STABLE):
                (learner,) = (await kubelet.pods("pong"))["learner"]
                await kubelet.end(learner, 1)
                await run.settle(viewer, "pong")
                assert await run_folder(kubelet) == {"emptyDir": {}}, "a job that runs is made as it was started"

    asyncio.run(story())


def test_a_namespace_that_allows_no_claim_still_runs_the_job(cluster: ControlPlane, namespace: str) -> None:
    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            quota = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.storage": "1Gi"}}}
            path = f"/api/v1/namespaces/{namespace}/resourcequotas"
            assert cluster.request("POST", path, quota)[0] == 201
            status = {"status": {"hard": {"requests.storage": "1Gi"}, "used": {"requests.storage": "0"}}}
            assert cluster.request("PATCH", f"{path}/q/status", status, "application/merge-patch+json")[0] == 200
            run = Run(client, namespace)
            with default_class(cluster, namespace, STABLE):
                await viewer.create(
                    RLJOBS, written(namespace, "pong", replay={"redis": {"persistence": {"mode": "None"}}})
                )
                await bring_up(run, viewer, kubelet, "pong")
            assert await run_folder(kubelet) == {"emptyDir": {}}

    asyncio.run(story())

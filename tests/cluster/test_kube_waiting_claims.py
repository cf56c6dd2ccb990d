"""A job on a cluster that makes no volumes: it says which claim waits, why, and what to do, before the scheduler's own words."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.core.observed import Observation
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import PODS, RLJOBS, VOLUME_CLAIMS, Object
from rljob_operator.kube.job.members import UNSCHEDULED_SECONDS
from rljob_operator.kube.job.status_writer import SELDOM_SECONDS
from rljob_operator.kube.job.stored import read
from rljob_operator.kube.job.waiting_claims import with_claims
from rljob_operator.kube.render.settings import Settings

from tests.cluster.control_plane import ControlPlane
from tests.cluster.reconciling import Run, stamped, written
from tests.cluster.test_kube_reconcile import Clock, at_work, condition, status_of

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
UNBOUND = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
ELSEWHERE = "0/3 nodes are available: 3 node(s) didn't match PersistentVolume's node affinity."
TAINTED = "0/3 nodes are available: 3 node(s) had untolerated taint(s). preemption is not helpful."
"""What a real scheduler says where one of three nodes is lost and the others are for others."""
DEFAULT = "storageclass.kubernetes.io/is-default-class"


@pytest.fixture
def storage_class(cluster: ControlPlane) -> Iterator[str]:
    """One whose provisioner does not run."""
    document = {"metadata": {"name": "slow"}, "provisioner": "example.com/disks", "volumeBindingMode": "Immediate"}
    code, answer = cluster.request("POST", CLASSES, document)
    assert code == 201, answer
    yield "slow"
    cluster.request("DELETE", f"{CLASSES}/slow")


async def say_unscheduled(viewer: Client, namespace: str, pod: Object, words: str = UNBOUND) -> None:
    """What the scheduler says of the pod."""
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    status = {"phase": "Pending", "conditions": [{**scheduled, "lastTransitionTime": stamped(time.time())}]}
    await viewer.patch(PODS, namespace, pod["metadata"]["name"], {"status": status}, subresource="status")


def said_of(
    cluster: ControlPlane, namespace: str, member: str, kind: str, settings: Settings | None = None,
    also: Object | None = None, **spec: Any,
) -> str:  # fmt: skip
    """The condition's message of a job whose ``member`` waits for its claim; ``also`` is a claim of its user's."""
    found: list[str] = []

    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            if also is not None:
                await viewer.create(VOLUME_CLAIMS, {**also, "metadata": {**also["metadata"], "namespace": namespace}})
            await viewer.create(RLJOBS, written(namespace, "pong", **spec))
            run = Run(client, namespace, settings or Settings(image="rl:1"))
            await run.settle(viewer, "pong")
            (pod,) = (await kubelet.pods("pong"))[member]
            await say_unscheduled(viewer, namespace, pod)
            await run.turn(viewer, "pong")
            status = await status_of(viewer, namespace, "pong")
            assert condition(status, kind) == ("False", "Unschedulable")
            found.extend(each["message"] for each in status["conditions"] if each["type"] == kind)

    asyncio.run(story())
    return found[0]


def test_a_cluster_without_a_default_storage_class(cluster: ControlPlane, namespace: str) -> None:
    said = said_of(cluster, namespace, "replay-0", "ReplayReady")
    assert "replay-0 (claim pong-replay-0 names no StorageClass, and the cluster has no default one: " in said
    assert f"kubectl annotate storageclass NAME {DEFAULT}=true" in said
    assert "spec.replay.redis.persistence.storageClassName of a new job" in said
    assert said.endswith(f"{UNBOUND})"), "the scheduler's words come after it"


def test_the_operators_claim_for_checkpoints(cluster: ControlPlane, namespace: str) -> None:
    settings = Settings(image="rl:1", checkpoint_class="fast")
    said = said_of(cluster, namespace, "learner", "LearnerReady", settings)
    assert "learner (claim pong-learner names StorageClass fast, which does not exist" in said
    assert "checkpointClaim.storageClass of the operator's configuration" in said


def test_a_class_that_does_not_exist(cluster: ControlPlane, namespace: str) -> None:
    redis = {"persistence": {"storageClassName": "fast"}}
    said = said_of(cluster, namespace, "replay-0", "ReplayReady", replay={"redis": redis})
    assert "claim pong-replay-0 names StorageClass fast, which does not exist: create it, or " in said


def test_a_provisioner_that_makes_nothing(cluster: ControlPlane, namespace: str, storage_class: str) -> None:
    redis = {"persistence": {"storageClassName": storage_class}}
    said = said_of(cluster, namespace, "replay-0", "ReplayReady", replay={"redis": redis})
    assert (
        "claim pong-replay-0: example.com/disks of StorageClass slow has made no volume yet: kubectl describe pvc"
        in said
    )


def test_a_scheduler_that_waits_for_a_volume_in_silence(
    cluster: ControlPlane, namespace: str, storage_class: str
) -> None:
    """As it does where a class binds with the first pod: until the volume is made, its pod has no condition at all."""

    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, _):
            redis = {"persistence": {"storageClassName": storage_class}}
            await viewer.create(RLJOBS, written(namespace, "pong", replay={"redis": redis}))
            clock = Clock()
            run = Run(client, namespace, now=clock.now, monotonic=clock.monotonic)
            await run.settle(viewer, "pong")
            clock.seconds += max(UNSCHEDULED_SECONDS, SELDOM_SECONDS) + 1.0  # words alone may be written so late
            await run.settle(viewer, "pong")
            status = await status_of(viewer, namespace, "pong")
            for type in ("ReplayReady", "Ready"):
                said = next(each["message"] for each in status["conditions"] if each["type"] == type)
                assert "claim pong-replay-0: example.com/disks of StorageClass slow has made no volume yet" in said
                assert "no scheduler has said anything of it" in said

    asyncio.run(story())


CHECKPOINTS = {"storage": {"persistentVolumeClaim": {"claimName": "mine"}}}


def claim(**spec: Any) -> Object:
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "mine"}, "spec": asked}


def test_a_claim_of_the_users_that_is_not_there(cluster: ControlPlane, namespace: str) -> None:
    said = said_of(cluster, namespace, "learner", "LearnerReady", checkpoint=CHECKPOINTS)
    assert f"learner (claim mine does not exist: create it in namespace {namespace}; " in said


def test_claims_of_the_users_without_a_volume(cluster: ControlPlane, namespace: str) -> None:
    said = said_of(cluster, namespace, "learner", "LearnerReady", also=claim(), checkpoint=CHECKPOINTS)
    assert "claim mine names no StorageClass, and the cluster has no default one: " in said
    assert "or make the claim anew with one that does" in said


def test_a_claim_for_a_volume_made_by_hand(cluster: ControlPlane, namespace: str) -> None:
    said = said_of(
        cluster, namespace, "learner", "LearnerReady", also=claim(storageClassName=""), checkpoint=CHECKPOINTS
    )
    assert "claim mine wants no StorageClass (an empty name): create a PersistentVolume that fits it" in said


def test_other_reasons_of_the_scheduler_cost_no_call(cluster: ControlPlane, namespace: str) -> None:
    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            await viewer.create(RLJOBS, written(namespace, "pong"))
            run = Run(client, namespace)
            await run.settle(viewer, "pong")
            (pod,) = (await kubelet.pods("pong"))["replay-0"]
            await say_unscheduled(viewer, namespace, pod, "0/3 nodes are available: 3 Insufficient cpu.")
            await run.settle(viewer, "pong")
            client.reset()
            await run.turn(viewer, "pong")
            assert ("get", "storageclasses") not in client.calls
            said = [each["message"] for each in (await status_of(viewer, namespace, "pong"))["conditions"]]
            assert any("(0/3 nodes are available: 3 Insufficient cpu.)" in words for words in said)

    asyncio.run(story())


@pytest.mark.parametrize("words", [ELSEWHERE, TAINTED], ids=["elsewhere", "tainted"])
def test_a_volume_of_a_node_that_is_away_is_waited_for_with_the_command_that_gives_it_up(
    cluster: ControlPlane, namespace: str, words: str
) -> None:
    """Whether it comes back can't be told: what the shard holds is its user's."""
    node = f"away-{namespace}"

    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            await viewer.create(RLJOBS, written(namespace, "pong"))
            run = Run(client, namespace)
            await run.settle(viewer, "pong")
            bound = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "32Gi"}}
            await viewer.patch(VOLUME_CLAIMS, namespace, "pong-replay-0", {"spec": {"volumeName": node}})
            await viewer.patch(VOLUME_CLAIMS, namespace, "pong-replay-0", {"status": bound}, subresource="status")
            (pod,) = (await kubelet.pods("pong"))["replay-0"]
            await say_unscheduled(viewer, namespace, pod, words)
            await run.settle(viewer, "pong")
            said = {
                each["type"]: each["message"] for each in (await status_of(viewer, namespace, "pong"))["conditions"]
            }
            for kind in ("ReplayReady", "Ready"):
                assert f"the volume of claim pong-replay-0 is on node {node}, of which nothing is heard" in said[kind]
                assert f"kubectl delete pvc -n {namespace} pong-replay-0" in said[kind]
            assert ("delete", "persistentvolumeclaims") not in client.calls
            uid = (await viewer.get(VOLUME_CLAIMS, namespace, "pong-replay-0"))["metadata"]["uid"]
            await viewer.delete(VOLUME_CLAIMS, namespace, "pong-replay-0")
            await viewer.patch(VOLUME_CLAIMS, namespace, "pong-replay-0", {"metadata": {"finalizers": None}})
            await say_unscheduled(viewer, namespace, pod, 'persistentvolumeclaim "pong-replay-0" not found')
            run.reconciler.child_gone((namespace, "pong"), uid)
            await run.turn(viewer, "pong")
            anew = await viewer.get(VOLUME_CLAIMS, namespace, "pong-replay-0")
            assert "volumeName" not in anew["spec"], "its user gave it up, and it is made anew"

    lost = {"metadata": {"name": node}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    assert cluster.request("POST", "/api/v1/nodes", lost)[0] == 201
    only = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    volume = {
        "metadata": {"name": node},
        "spec": {
            "capacity": {"storage": "32Gi"},
            "accessModes": ["ReadWriteOnce"],
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [only]}]}},
        },
    }
    assert cluster.request("POST", "/api/v1/persistentvolumes", volume)[0] == 201
    try:
        asyncio.run(story())
    finally:
        cluster.request("DELETE", f"/api/v1/persistentvolumes/{node}")
        cluster.request("DELETE", f"/api/v1/nodes/{node}")


def test_a_pod_that_waits_for_the_volume_of_its_last_node_says_how_long_that_may_take(
    cluster: ControlPlane, namespace: str
) -> None:
    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, _):
            stored = read(await viewer.create(RLJOBS, written(namespace, "pong")))
            await Run(client, namespace).settle(viewer, "pong")
            bound = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "32Gi"}}
            await viewer.patch(VOLUME_CLAIMS, namespace, "pong-replay-0", {"status": bound}, subresource="status")

            async def said(pod_age: float, claim_older_by: float, words: str = "") -> str:
                made = time.time() + claim_older_by
                shard = Member("replay-0", Role.REPLAY, Phase.STARTING, made, node_name="cpu-1", waiting_message=words)
                settings = Settings(image="rl:1")
                seen = await with_claims(
                    client, stored.owned(), Observation(members=(shard,)), settings, made + pod_age
                )
                return seen.members[0].waiting_message

            assert "claim pong-replay-0 may still be attached" in await said(40.0, 3600.0)
            assert "after about 6 minutes" in await said(40.0, 3600.0)
            assert await said(40.0, 0.0) == "", "its claim is as young as the pod: nothing was attached before"
            assert await said(5.0, 3600.0) == "", "a pod takes its time anyway"
            missing = 'CreateContainerConfigError: secret "token" not found'
            assert await said(40.0, 3600.0, missing) == missing, "its kubelet knows better"

    asyncio.run(story())

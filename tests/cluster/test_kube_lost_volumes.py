"""A replay shard whose volume was on a node that is gone: it waits for a while, then begins on a new claim."""

from __future__ import annotations

import asyncio
import time

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import PODS, RLJOBS, VOLUME_CLAIMS, Object
from rljob_operator.kube.render.settings import Settings

from tests.cluster.control_plane import ControlPlane
from tests.cluster.reconciling import Kubelet, Run, bring_up, stamped, written
from tests.cluster.test_kube_reconcile import TWO_ACTORS, Clock, at_work, condition, status_of

NODE, SECONDS = "lost-1", 600
SETTINGS = Settings(image="rl:1", volume_lost_seconds=SECONDS)
FITS_NOWHERE = "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity."
MERGE = "application/merge-patch+json"


def make_node(cluster: ControlPlane) -> None:
    code, answer = cluster.request("POST", "/api/v1/nodes", {"metadata": {"name": NODE}})
    assert code == 201, answer


def say_of_node(cluster: ControlPlane, ready: str, since: float) -> None:
    conditions = [
        {"type": "Ready", "status": ready, "lastTransitionTime": stamped(since), "reason": "NodeStatusUnknown"}
    ]
    path = f"/api/v1/nodes/{NODE}/status"
    code, answer = cluster.request("PATCH", path, {"status": {"conditions": conditions}}, MERGE)
    assert code == 200, answer


async def claims(viewer: Client, namespace: str) -> set[str]:
    """Names of those that nobody has asked to go."""
    found = (await viewer.list(VOLUME_CLAIMS, namespace)).items
    return {each["metadata"]["name"] for each in found if "deletionTimestamp" not in each["metadata"]}


async def find_no_place(viewer: Client, namespace: str, pod: Object) -> None:
    """What the scheduler says of the pod."""
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": FITS_NOWHERE}
    status = {"phase": "Pending", "conditions": [{**scheduled, "lastTransitionTime": stamped(time.time())}]}
    await viewer.patch(PODS, namespace, pod["metadata"]["name"], {"status": status}, subresource="status")


async def wait_for_volume(run: Run, viewer: Client, kubelet: Kubelet, namespace: str, clock: Clock) -> Object:
    """The job trains, its shard ends, and the next one waits for the volume on `NODE`."""
    await viewer.create(RLJOBS, written(namespace, "pong", backoffLimit=9, **TWO_ACTORS))
    await bring_up(run, viewer, kubelet, "pong")
    note = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": NODE}}}
    await viewer.patch(VOLUME_CLAIMS, namespace, "pong-replay-0", note)
    (shard,) = (await kubelet.pods("pong"))["replay-0"]
    await kubelet.end(shard, 1)
    for _ in range(2):
        clock.seconds += 1.0
        await run.settle(viewer, "pong")
    (shard,) = (await kubelet.pods("pong"))["replay-0"]
    await find_no_place(viewer, namespace, shard)
    return shard


@pytest.mark.parametrize("how", ["deleted", "silent"])
def test_it_starts_cold_once_the_node_is_gone_for_long(cluster: ControlPlane, namespace: str, how: str) -> None:
    make_node(cluster)

    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            clock = Clock()
            run = Run(client, namespace, SETTINGS, now=clock.now, monotonic=clock.monotonic)
            say_of_node(cluster, "True", clock.now())
            shard = await wait_for_volume(run, viewer, kubelet, namespace, clock)
            clock.seconds += 10 * SECONDS
            await run.settle(viewer, "pong")
            status = await status_of(viewer, namespace, "pong")
            assert condition(status, "ReplayReady") == ("False", "Unschedulable"), "its node is there, and full perhaps"

            if how == "deleted":
                cluster.request("DELETE", f"/api/v1/nodes/{NODE}")
            else:
                say_of_node(cluster, "Unknown", clock.now())
            await run.settle(viewer, "pong")
            clock.seconds += SECONDS - 5.0
            await run.settle(viewer, "pong")
            (same,) = (await kubelet.pods("pong"))["replay-0"]
            assert same["metadata"]["uid"] == shard["metadata"]["uid"]
            assert await claims(viewer, namespace) == {"pong-replay-0"}

            clock.seconds += 10.0
            await run.settle(viewer, "pong")
            status = await status_of(viewer, namespace, "pong")
            assert condition(status, "ReplayReady") == ("False", "VolumeLost")
            assert await claims(viewer, namespace) == {"pong-replay-0-1"}
            (fresh,) = (await kubelet.pods("pong"))["replay-0"]
            volumes = [each.get("persistentVolumeClaim", {}).get("claimName") for each in fresh["spec"]["volumes"]]
            assert "pong-replay-0-1" in volumes
            await kubelet.start("pong")
            await run.settle(viewer, "pong")
            status = await status_of(viewer, namespace, "pong")
            assert condition(status, "ReplayReady") == ("True", "PodsReady")
            assert status["restarts"] == {"counted": 1, "ignored": 0}, "nothing but the end that the test has made"

            again = Run(client, namespace, SETTINGS, now=clock.now, monotonic=clock.monotonic)
            (actor,) = (await kubelet.pods("pong"))["actor-1"]
            await kubelet.end(actor, 1)
            for _ in range(2):
                clock.seconds += 1.0
                await again.settle(viewer, "pong")
            assert await claims(viewer, namespace) == {"pong-replay-0-1"}, "the next operator knows which one is in use"

    try:
        asyncio.run(story())
    finally:
        cluster.request("DELETE", f"/api/v1/nodes/{NODE}")


def test_it_waits_for_ever_where_the_operator_is_told_to(cluster: ControlPlane, namespace: str) -> None:
    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            clock = Clock()
            waiting = Settings(image="rl:1", volume_lost_seconds=0)
            run = Run(client, namespace, waiting, now=clock.now, monotonic=clock.monotonic)
            shard = await wait_for_volume(run, viewer, kubelet, namespace, clock)
            for _ in range(2):
                clock.seconds += 10 * SECONDS
                await run.settle(viewer, "pong")
            (same,) = (await kubelet.pods("pong"))["replay-0"]
            assert same["metadata"]["uid"] == shard["metadata"]["uid"]

    asyncio.run(story())

"""The nodes of a real API server, as the operator follows them, and as it does without them where it may not.

What the reconciler does about nodes, shards that are silent, and claims that are gone, turn by turn on a real API server.
"""

import asyncio
import json
import time
from pathlib import Path

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.reflector import Reflector
from rljob_operator.kube.apiserver.resources import NODES, PODS, VOLUME_CLAIMS, Object
from rljob_operator.kube.watch.kept import NodeCache
from rljob_operator.polls.poll import Alive, Silence

from tests.cluster.control_plane import ControlPlane, connected, meanwhile, until
from tests.cluster.reconciling import TWO_ACTORS, BreakingClient, Kubelet, Run, started, status_of, written
from tests.support.operator_roles import role_objects

NODE = "node-of-this-test"
LOST = {
    "status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": ""}]}
}


def logged_in(cluster: ControlPlane, namespace: str, folder: Path, watched: tuple[str, ...] = ()) -> Path:
    """A kubeconfig of a ServiceAccount with the operator's rights."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "operator", "namespace": namespace}}
    for document in (account, *role_objects("operator", namespace, watched)):
        cluster.told("apply", "-f", "-", stdin=json.dumps(document))
    return cluster.kubeconfig_for(folder, {"token": cluster.token(namespace, "operator")})


async def test_a_lost_node_is_seen_with_the_operators_own_rights(
    cluster: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    async def kubectl(*words: str, stdin: str | None = None) -> None:
        await asyncio.to_thread(cluster.told, *words, stdin=stdin)

    told: list[str] = []
    nodes = NodeCache(told.append)
    try:
        async with (
            connected(cluster, logged_in(cluster, namespace, tmp_path)) as client,
            meanwhile(Reflector(client, NODES, nodes).run()),
        ):
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
            await kubectl("create", "-f", "-", stdin=json.dumps(node))
            await kubectl("patch", "node", NODE, "--subresource=status", "--type=merge", "-p", json.dumps(LOST))
            await until("it is lost", lambda: nodes.lost(NODE))
            await kubectl("delete", "node", NODE)
            await until("it is gone", lambda: not nodes.lost(NODE))
            assert told == [NODE] * 2
    finally:
        for kind, name in (("node", NODE), ("clusterrolebinding", "operator"), ("clusterrole", "operator")):
            cluster.kubectl("delete", kind, name, "--ignore-not-found")


async def test_an_operator_of_one_namespace_does_without_nodes_and_says_so_once(
    cluster: ControlPlane, namespace: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(cluster, logged_in(cluster, namespace, tmp_path, (namespace,))) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(Reflector(client, NODES, NodeCache(lambda name: None)).run(), 5.0)
    assert caplog.text.count("nodes in all namespaces: nodes is forbidden") == 1


RUNS_ON = "node-1"
"""Where the tests' kubelet runs all pods."""
WITH_CLAIM = {"redis": {"persistence": {"storage": "1Gi"}}}


def tell(run: Run, ready: str = "True") -> None:
    """The watch of nodes brings this."""
    document: Object = {"metadata": {"name": RUNS_ON}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}
    run.nodes.change("MODIFIED", run.nodes.keep(document))


async def test_a_silent_shard_and_a_lost_node_are_named(
    viewer: Client, kubelet: Kubelet, run: Run, namespace: str
) -> None:
    await started(run, viewer, kubelet, written(namespace, "pong", **TWO_ACTORS))
    uid = (await kubelet.pod("pong", "replay-0"))["metadata"]["uid"]
    assert Alive(uid, "http://10.1.0.7:9090") in run.poll.followed[namespace, "pong"]

    tell(run, ready="Unknown")
    await run.turn(viewer, "pong")
    told = {each["type"]: each for each in (await status_of(viewer, namespace, "pong"))["conditions"]}
    for type in ("ReplayReady", "LearnerReady", "ActorsReady"):
        assert (told[type]["status"], told[type]["reason"]) == ("False", "NodeLost")
    assert len(await kubelet.pods("pong")) == 4

    tell(run)
    run.poll.silences[uid] = Silence(time.time() - 5.0, "does not answer")
    await run.turn(viewer, "pong")
    await run.settle(viewer, "pong")
    told = {each["type"]: each for each in (await status_of(viewer, namespace, "pong"))["conditions"]}
    assert told["ReplayReady"]["status"] == "True"
    assert "replay-0 does not answer" in told["Ready"]["message"], told["Ready"]


async def test_a_claim_that_was_deleted_while_no_operator_was_there_is_made_anew(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, run: Run, namespace: str
) -> None:
    await run.begin(viewer, written(namespace, "pong", **TWO_ACTORS, replay=WITH_CLAIM))
    pod = await kubelet.pod("pong", "replay-0")
    claim = await viewer.get(VOLUME_CLAIMS, namespace, "pong-replay-0")
    await viewer.patch(VOLUME_CLAIMS, namespace, "pong-replay-0", {"metadata": {"finalizers": None}})
    await viewer.delete(VOLUME_CLAIMS, namespace, "pong-replay-0")
    words = '0/3 nodes are available: persistentvolumeclaim "pong-replay-0" not found. not found'
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    name = pod["metadata"]["name"]
    await viewer.patch(PODS, namespace, name, {"status": {"conditions": [waits]}}, subresource="status")

    await Run(client, namespace).settle(viewer, "pong")
    assert (await viewer.get(VOLUME_CLAIMS, namespace, "pong-replay-0"))["metadata"]["uid"] != claim["metadata"]["uid"]
    assert [each["metadata"]["name"] for each in (await kubelet.pods("pong"))["replay-0"]] == [name]

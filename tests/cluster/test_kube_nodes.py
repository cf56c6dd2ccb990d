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
from tests.cluster.reconciling import TWO_ACTORS, OneJob, Run
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


async def test_a_silent_shard_and_a_lost_node_are_named(pong: OneJob) -> None:
    await pong.start(**TWO_ACTORS)
    uid = (await pong.pod("replay-0"))["metadata"]["uid"]
    assert Alive(uid, "http://10.1.0.7:9090") in pong.run.poll.followed[pong.key]

    tell(pong.run, ready="Unknown")
    await pong.turn()
    await pong.expect(**dict.fromkeys(("ReplayReady", "LearnerReady", "ActorsReady"), ("False", "NodeLost")))
    assert len(await pong.pods()) == 4

    tell(pong.run)
    pong.run.poll.silences[uid] = Silence(time.time() - 5.0, "does not answer")
    await pong.turn()
    await pong.settle()
    await pong.expect(ReplayReady=("True",))
    assert "replay-0 does not answer" in await pong.message("Ready")


async def test_a_claim_that_was_deleted_while_no_operator_was_there_is_made_anew(viewer: Client, pong: OneJob) -> None:
    claim = (VOLUME_CLAIMS, pong.namespace, "pong-replay-0")
    await pong.begin(**TWO_ACTORS, replay=WITH_CLAIM)
    before, name = await viewer.get(*claim), (await pong.pod("replay-0"))["metadata"]["name"]
    await viewer.patch(*claim, {"metadata": {"finalizers": None}})
    await viewer.delete(*claim)
    words = '0/3 nodes are available: persistentvolumeclaim "pong-replay-0" not found. not found'
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    await viewer.patch(PODS, pong.namespace, name, {"status": {"conditions": [waits]}}, subresource="status")

    pong.next_operator()
    await pong.settle()
    assert (await viewer.get(*claim))["metadata"]["uid"] != before["metadata"]["uid"]
    assert (await pong.pod("replay-0"))["metadata"]["name"] == name

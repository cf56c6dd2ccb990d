"""The nodes of a real API server, as the operator follows them, and as it does without them where it may not."""

import asyncio
import json
from pathlib import Path

import pytest
from rljob_operator.kube.apiserver.reflector import Reflector
from rljob_operator.kube.apiserver.resources import NODES
from rljob_operator.kube.watch.nodes import NodeCache

from tests.cluster.control_plane import ControlPlane, connected, meanwhile, until
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

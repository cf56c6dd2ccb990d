"""What the controller knows of nodes: whether one is being emptied, and whether it is still heard of.

A drain begins by cordoning its node, and that is all that can be seen of it before it evicts: an eviction that a disruption
budget refuses leaves no trace. So a cordoned node counts as one that is being emptied.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import ApiError, Forbidden
from rljob_operator.kube.apiserver.reflector import Reflector
from rljob_operator.kube.apiserver.resources import NODES, Object

log = logging.getLogger(__name__)

EMPTIED_TAINTS: Final = frozenset({"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"})
"""Taints by which autoscalers say that a node goes, beside the cordon of a drain."""
ASK_AGAIN_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Node:
    """One node.

    Attributes:
        emptied_seconds: when it was first seen to be emptied, Unix seconds; None where it is not.
        lost: its kubelet has not been heard of for the cluster's grace period.
    """

    emptied_seconds: float | None = None
    lost: bool = False


_FINE: Final = Node()


class NodeCache:
    """The nodes of which there is something to tell. ``on_change`` is told the name of each of which something else is known."""

    def __init__(self, on_change: Callable[[str], None], now: Callable[[], float] = time.time) -> None:
        self._on_change, self._now = on_change, now
        self._nodes: dict[str, Node] = {}

    def get(self, name: str) -> Node:
        """What is known of the node; of one that nobody has told of, that it is fine."""
        return self._nodes.get(name, _FINE)

    def keep(self, document: Object) -> Object:
        """See `reflector.Copy`."""
        about = document["metadata"]
        facts = {"emptied": _is_emptied(document), "lost": _is_lost(document)}
        return {"metadata": {"name": about["name"], "resourceVersion": about.get("resourceVersion", "")}, **facts}

    def replace(self, namespace: str | None, documents: list[Object]) -> None:
        """See `reflector.Copy`."""
        for name in set(self._nodes) - {each["metadata"]["name"] for each in documents}:
            self._note(name, _FINE)
        for document in documents:
            self.change("MODIFIED", document)

    def change(self, kind: str, document: Object) -> None:
        """See `reflector.Copy`. A node that is deleted takes its pods with it, which is told by them."""
        name = document["metadata"]["name"]
        if kind == "DELETED":
            self._note(name, _FINE)
            return
        since = self.get(name).emptied_seconds
        emptied = (since if since is not None else self._now()) if document["emptied"] else None
        self._note(name, Node(emptied, document["lost"]))

    def _note(self, name: str, found: Node) -> None:
        if found == self.get(name):
            return
        if found == _FINE:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = found
        self._on_change(name)


class Nodes(NodeCache):
    """The cache, and what keeps it in step where nodes may be read. An operator of single namespaces may not be allowed to."""

    def __init__(self, client: Client, on_change: Callable[[str], None], now: Callable[[], float] = time.time) -> None:
        super().__init__(on_change, now)
        self._client = client

    async def run(self) -> None:
        """Never ends by itself, but where nodes may not be read: then every node counts as fine."""
        if await self._may_read():
            await Reflector(self._client, NODES, self).run()

    async def _may_read(self) -> bool:
        while True:
            try:
                await anext(self._client.pages(NODES, None, limit=1))
            except Forbidden:
                log.warning(
                    "nodes may not be read: a drain waits for learners and shards that are Protected until somebody deletes "
                    "their pods, and lost nodes are not named"
                )
                return False
            except ApiError as problem:
                log.info("nodes: %s", problem)
                await asyncio.sleep(ASK_AGAIN_SECONDS)
            else:
                return True


def _is_emptied(document: Mapping[str, Any]) -> bool:
    spec = document.get("spec") or {}
    return bool(spec.get("unschedulable")) or any(
        taint.get("key") in EMPTIED_TAINTS for taint in spec.get("taints") or ()
    )


def _is_lost(document: Mapping[str, Any]) -> bool:
    conditions = (document.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "Unknown" for each in conditions)

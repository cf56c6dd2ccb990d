"""All kubelets of a cluster that has none, and its garbage collector, as far as the operator can see.

Pods run at once, each with an address of its own, and end when they are asked to.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import ApiError, NotFound
from rljob_operator.kube.apiserver.reflector import Reflector
from rljob_operator.kube.apiserver.resources import PODS, Object
from rljob_operator.kube.render import names

from benchmarks.operator_at_scale.cluster import deleted
from tests.cluster.kubelet import Kubelet, stamped


class Kubelets:
    """The kubelets of one namespace. ``addresses`` are given out one after the other; none is used again."""

    def __init__(self, client: Client, namespace: str, addresses: str) -> None:
        self._client, self._namespace = client, namespace
        self._hands = Kubelet(client, namespace)
        self._free = ipaddress.ip_network(addresses).hosts()
        self._todo: asyncio.Queue[Object] = asyncio.Queue()
        self.pods: dict[str, Object] = {}
        """Those that there are, by name."""

    def keep(self, document: Object) -> Object:
        """See `reflector.Copy`."""
        about, status = document["metadata"], document.get("status") or {}
        return {
            "metadata": {"name": about["name"], "labels": about["labels"]},
            "leaving": "deletionTimestamp" in about,
            "phase": status.get("phase"),
        }

    def replace(self, namespace: str | None, documents: list[Object]) -> None:
        """See `reflector.Copy`."""
        for each in documents:
            self.change("ADDED", each)

    def change(self, kind: str, document: Object) -> None:
        """See `reflector.Copy`."""
        name = document["metadata"]["name"]
        before = self.pods.pop(name, None)
        if kind == "DELETED":
            return
        self.pods[name] = document
        if before is None or before["leaving"] != document["leaving"]:
            self._todo.put_nowait(document)

    async def work(self) -> None:
        """Never ends by itself."""
        while True:
            pod = await self._todo.get()
            with suppress(ApiError):  # it has changed meanwhile, and what it has become is in the queue
                await (self._end(pod) if pod["leaving"] else self._run(pod))

    async def fail(self, pod: str) -> None:
        """Have it end by itself."""
        await self._hands.end(self.pods[pod])

    async def delete_job(self, job: str) -> None:
        """Its user deletes it, and then the garbage collector what was the job's."""
        await deleted(self._client, self._namespace, [job])
        for name in [name for name, pod in self.pods.items() if pod["metadata"]["labels"][names.JOB_LABEL] == job]:
            with suppress(NotFound):
                await self._client.delete(PODS, self._namespace, name, grace_seconds=0)

    async def _run(self, pod: Object) -> None:
        if pod["phase"] != "Pending":
            return
        await self._hands.bind(pod)
        address = str(next(self._free))
        began = stamped(time.time())
        worker: dict[str, Any] = {"name": names.WORKER, "image": "none", "imageID": "", "restartCount": 0}
        worker |= {"ready": True, "started": True, "state": {"running": {"startedAt": began}}}
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "containerStatuses": [worker]}
        await self._client.patch(
            PODS, self._namespace, pod["metadata"]["name"], {"status": status}, subresource="status"
        )

    async def _end(self, pod: Object) -> None:
        if pod["phase"] not in ("Failed", "Succeeded"):
            await self._hands.end(pod, 0, "Completed")
        await self._client.delete(PODS, self._namespace, pod["metadata"]["name"], grace_seconds=0)


@asynccontextmanager
async def kubelets(client: Client, namespace: str, addresses: str) -> AsyncIterator[Kubelets]:
    """At work for as long as this lasts."""
    found = Kubelets(client, namespace, addresses)
    reflector = Reflector(client, PODS, found, namespace=namespace, label_selector=names.SELECTOR)
    running = [asyncio.ensure_future(each) for each in (reflector.run(), found.work())]
    try:
        yield found
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

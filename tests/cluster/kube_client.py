"""Our client on the API server of the tests, and the objects they need."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kubernetes.aio.client.configuration import Configuration
from rljob_operator.kube.apiserver.access import Access, load_access
from rljob_operator.kube.apiserver.client import Client

from tests.cluster.control_plane import ControlPlane

NAMESPACE = "default"


@asynccontextmanager
async def connected(cluster: ControlPlane, kubeconfig: Path | None = None, **options: Any) -> AsyncIterator[Client]:
    """An administrator's client, or one that logs in as ``kubeconfig`` says."""
    client = Client(await load_access(str(kubeconfig or cluster.kubeconfig)), **options)
    try:
        yield client
    finally:
        await client.close()


def connects(url_or_kubeconfig: str | Path) -> Callable[[], Coroutine[Any, Any, Client]]:
    """What an `Elector` makes its own client with: an administrator's, or one of a server that asks for no login."""

    async def connect() -> Client:
        if isinstance(url_or_kubeconfig, Path):
            return Client(await load_access(str(url_or_kubeconfig)))
        return Client(Access(Configuration(host=url_or_kubeconfig), "default", None, None))

    return connect


def config_map(
    name: str, namespace: str = NAMESPACE, labels: dict[str, str] | None = None, **data: str
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "data": data,
    }


async def until(what: str, holds: Callable[[], bool], seconds: float = 30.0) -> float:
    """Wait until ``holds``; how long it took in seconds."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < seconds, f"{what} has not come true within {seconds:g} s"
        await asyncio.sleep(0.02)
    return time.monotonic() - began

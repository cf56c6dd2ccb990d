"""Our client on the API server of the tests, and the objects they need."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from kubernetes.aio.client.configuration import Configuration
from rljob_operator.kube.apiserver.access import Access, load_access
from rljob_operator.kube.apiserver.client import Client

from tests.cluster.control_plane import ControlPlane

NAMESPACE = "default"
C = TypeVar("C", bound=Client)


@asynccontextmanager
async def connected(
    cluster: ControlPlane,
    kubeconfig: Path | None = None,
    kind: type[C] = Client,  # type: ignore[assignment]
    **options: Any,
) -> AsyncIterator[C]:
    """An administrator's client, or one that logs in as ``kubeconfig`` says."""
    client = kind(await load_access(str(kubeconfig or cluster.kubeconfig)), **options)
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


async def until(what: str, holds: Callable[[], Any], seconds: float = 30.0, said: Callable[[], Any] = str) -> float:
    """Wait until ``holds``, which may be a coroutine function; how long it took in seconds. ``said`` explains a failure."""
    began = time.monotonic()
    while not (await found if inspect.isawaitable(found := holds()) else found):
        assert time.monotonic() - began < seconds, f"{what} has not come true within {seconds:g} s: {said()}"
        await asyncio.sleep(0.05)
    return time.monotonic() - began


@asynccontextmanager
async def meanwhile(work: Coroutine[Any, Any, Any]) -> AsyncIterator[asyncio.Task[Any]]:
    """It goes on in the block, and must not end by itself."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        assert not task.done(), task.exception()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def away(cluster: ControlPlane, how: str) -> AsyncIterator[None]:
    """Meanwhile the API server is ``killed``, or it (``hanging``) or its ``etcd`` stands still."""
    if how != "killed":
        with cluster.hanging("etcd" if how == "etcd" else "kube-apiserver"):
            yield
        return
    await asyncio.to_thread(cluster.kill_api_server)
    try:
        yield
    finally:
        await asyncio.to_thread(cluster.start_api_server)

"""What a cluster has, as its watches tell: pods and when each was created and ready, jobs and when each said that it is ready."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import NotFound
from rljob_operator.kube.apiserver.reflector import Copy, Reflector
from rljob_operator.kube.apiserver.resources import (
    CONFIG_MAPS,
    LEASES,
    NETWORK_POLICIES,
    PODS,
    RLJOBS,
    SECRETS,
    SERVICES,
    VOLUME_CLAIMS,
    Object,
    Resource,
)
from rljob_operator.kube.render import names

CHILDREN = (
    SECRETS,
    CONFIG_MAPS,
    SERVICES,
    NETWORK_POLICIES,
    VOLUME_CLAIMS,
)


class Seen:
    """Keeps of each object of one kind when it was first seen, and when first as it should be; by its own name.

    A copy that a `Reflector` keeps in step; times are seconds of the monotonic clock.
    """

    def __init__(self, is_ready: Callable[[Object], bool] = lambda _: True) -> None:
        self._is_ready = is_ready
        self.created: dict[str, float] = {}
        self.ready: dict[str, float] = {}
        self.job_of: dict[str, str] = {}
        self.there: set[str] = set()

    def keep(self, document: Object) -> Object:
        """See `reflector.Copy`."""
        about = document["metadata"]
        job = (about.get("labels") or {}).get(names.JOB_LABEL, about["name"])
        return {"name": about["name"], "job": job, "ready": self._is_ready(document)}

    def replace(self, namespace: str | None, documents: list[Object]) -> None:
        """See `reflector.Copy`."""
        self.there &= {each["name"] for each in documents}
        for each in documents:
            self.change("MODIFIED", each)

    def change(self, kind: str, document: Object) -> None:
        """See `reflector.Copy`."""
        name, now = document["name"], time.monotonic()
        if kind == "DELETED":
            self.there.discard(name)
            return
        self.there.add(name)
        self.job_of[name] = document["job"]
        self.created.setdefault(name, now)
        if document["ready"]:
            self.ready.setdefault(name, now)


def pod_ready(pod: Object) -> bool:
    """Whether its node says that it is Ready."""
    return condition(pod, "Ready") == "True"


def condition(document: Object, kind: str) -> str:
    """The status of a condition; empty where nothing was said of it."""
    found = (document.get("status") or {}).get("conditions") or ()
    return next((str(each["status"]) for each in found if each["type"] == kind), "")


@asynccontextmanager
async def followed(client: Client, namespace: str | None, *seen: tuple[Resource, Copy]) -> AsyncIterator[None]:
    """Every copy follows what it should for as long as this lasts; it begins with all that is there."""
    reflectors = [
        Reflector(
            client,
            resource,
            each,
            namespace=namespace,
            label_selector="" if resource in (RLJOBS, LEASES) else names.SELECTOR,
        )
        for resource, each in seen
    ]
    running = [asyncio.ensure_future(each.run()) for each in reflectors]
    try:
        for each in reflectors:
            await each.synced.wait()
        yield
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def created(client: Client, documents: Iterable[Object], at_once: int) -> None:
    """Create them, so many at once."""
    waiting = iter(documents)

    async def work() -> None:
        for document in waiting:
            await client.create(RLJOBS, document)

    await asyncio.gather(*(work() for _ in range(at_once)))


async def children(client: Client, namespace: str | None) -> dict[str, int]:
    """How many objects of every kind the operator has made."""
    found = {}
    for resource in (*CHILDREN, PODS):
        page = await client.list(resource, namespace, label_selector=names.SELECTOR, metadata_only=True)
        found[resource.plural] = len(page.items)
    return found


async def deleted(client: Client, namespace: str, jobs: Iterable[str], at_once: int = 16) -> None:
    """Ask for the end of these jobs."""
    waiting = iter(list(jobs))

    async def work() -> None:
        for name in waiting:
            try:
                await client.delete(RLJOBS, namespace, name, propagation="Background")
            except NotFound:
                continue

    await asyncio.gather(*(work() for _ in range(at_once)))


async def until(what: str, holds: Callable[[], bool], seconds: float) -> None:
    """Wait for it. Raises TimeoutError."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        await asyncio.sleep(0.02)

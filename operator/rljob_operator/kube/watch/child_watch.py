"""Tells when a job's child has gone or is going: a ConfigMap, Service, NetworkPolicy or claim that was deleted.

Only the owner of each child is kept, and the names of claims that are going: such a claim stays for as long as a pod uses it.
Secrets are not among them: only the jobs' own pods need to know of them.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.reflector import Reflector
from rljob_operator.kube.apiserver.resources import (
    CONFIG_MAPS,
    NETWORK_POLICIES,
    SERVICES,
    VOLUME_CLAIMS,
    Object,
)
from rljob_operator.kube.render import names
from rljob_operator.kube.watch.pods import JobKey, owner_of

WATCHED: Final = (CONFIG_MAPS, SERVICES, NETWORK_POLICIES, VOLUME_CLAIMS)


class ChildrenOfOneKind:
    """The children of one kind that are there. ``gone`` is told the job and the uid of each that is not any more, or is going.
    ``going`` has the latter, (namespace, name) by uid; claims of no job are among them, as jobs may name those of users."""

    def __init__(self, gone: Callable[[JobKey, str], None], going: dict[str, tuple[str, str]]) -> None:
        self._gone, self._going = gone, going
        self._jobs: dict[str, JobKey] = {}  # by the child's uid

    def keep(self, document: Object) -> Object:
        """See `reflector.Copy`."""
        about, owner = document["metadata"], owner_of(document)
        going = (about["namespace"], about["name"]) if "deletionTimestamp" in about else None
        job = about["namespace"], owner["name"] if owner is not None else ""
        return {"uid": about["uid"], "job": job, "going": going}

    def replace(self, namespace: str | None, documents: list[Object]) -> None:
        """See `reflector.Copy`."""
        found = {each["uid"] for each in documents}
        for uid, job in list(self._jobs.items()):
            if uid not in found and namespace in (None, job[0]):
                self.change("DELETED", {"uid": uid, "job": job, "going": None})
        for each in documents:
            self.change("ADDED", each)

    def change(self, kind: str, document: Object) -> None:
        """See `reflector.Copy`."""
        uid, job, going = document["uid"], document["job"], document["going"]
        known, told = self._jobs.pop(uid, None), self._going.pop(uid, None)
        if kind != "DELETED":
            self._jobs[uid] = job
            self._going |= {uid: going} if going else {}
        if known if kind == "DELETED" else going and not told:
            self._gone(job, uid)


class ChildWatch:
    """Watches the children of all jobs in the given namespaces (None: in all). All but claims, whose end costs what was learned,
    are chosen by their labels: one that has lost them counts as gone, and is found by its name."""

    def __init__(self, client: Client, namespaces: Sequence[str] | None, gone: Callable[[JobKey, str], None]) -> None:
        self.going: dict[str, tuple[str, str]] = {}
        """(namespace, name) of claims that are being deleted, by uid: each is there for as long as a pod uses it."""
        self._reflectors = [
            Reflector(client, resource, ChildrenOfOneKind(gone, self.going), namespace=scope, label_selector=selector)
            for resource in WATCHED
            for selector in ["" if resource is VOLUME_CLAIMS else names.SELECTOR]
            for scope in namespaces or (None,)
        ]

    async def run(self) -> None:
        """Never ends by itself."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())

"""Tells when a job's child has gone: a ConfigMap, Service, ServiceAccount, NetworkPolicy or claim that was deleted.

Only the owner of each child is kept. Secrets are not among them: only the jobs' own pods need to know of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.reflector import Reflector
from rljob_operator.kube.apiserver.resources import (
    CONFIG_MAPS,
    NETWORK_POLICIES,
    SERVICE_ACCOUNTS,
    SERVICES,
    VOLUME_CLAIMS,
    Object,
)
from rljob_operator.kube.render import names
from rljob_operator.kube.watch.pods import JobKey, owner_of

WATCHED: Final = (CONFIG_MAPS, SERVICES, SERVICE_ACCOUNTS, NETWORK_POLICIES, VOLUME_CLAIMS)


class ChildrenOfOneKind:
    """The children of one kind that are there. ``gone`` is told the job and the uid of each that is not any more."""

    def __init__(self, gone: Callable[[JobKey, str], None]) -> None:
        self._gone = gone
        self._jobs: dict[str, JobKey] = {}  # by the child's uid

    def keep(self, document: Object) -> Object:
        """See `reflector.Copy`."""
        about, owner = document["metadata"], owner_of(document)
        return {"uid": about["uid"], "job": (about["namespace"], owner["name"] if owner is not None else "")}

    def replace(self, namespace: str | None, documents: list[Object]) -> None:
        """See `reflector.Copy`."""
        found = {each["uid"] for each in documents}
        for uid, job in list(self._jobs.items()):
            if uid not in found and namespace in (None, job[0]):
                self.change("DELETED", {"uid": uid, "job": job})
        for each in documents:
            self.change("ADDED", each)

    def change(self, kind: str, document: Object) -> None:
        """See `reflector.Copy`."""
        if kind != "DELETED":
            self._jobs[document["uid"]] = document["job"]
        elif self._jobs.pop(document["uid"], None) is not None:
            self._gone(document["job"], document["uid"])


class ChildWatch:
    """Watches the children of all jobs in the given namespaces (None: in all)."""

    def __init__(self, client: Client, namespaces: Sequence[str] | None, gone: Callable[[JobKey, str], None]) -> None:
        scopes: Sequence[str | None] = [None] if namespaces is None else namespaces
        self._reflectors = [
            Reflector(client, resource, ChildrenOfOneKind(gone), namespace=scope, label_selector=names.SELECTOR)
            for resource in WATCHED
            for scope in scopes
        ]

    async def run(self) -> None:
        """Never ends by itself."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())

"""The Workloads by which jobs ask Kueue for quota, as the API server last told them, found by their job."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import product
from typing import Final

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import ApiError, Forbidden, NotFound
from rljob_operator.kube.apiserver.reflector import Reflector
from rljob_operator.kube.apiserver.resources import Object, Resource, without_managed_fields
from rljob_operator.kube.render.workload import GROUP
from rljob_operator.kube.watch.pods import SYNCED_EVERY_SECONDS, JobKey, owner_of

log = logging.getLogger(__name__)

VERSIONS: Final = ("v1beta2", "v1beta1")
"""Versions of Kueue's API, the newest first. What is used of them is the same."""
ASK_AGAIN_SECONDS: Final = 15.0
_NO_KUEUE: Final = (
    f"kueue.enabled is set, and this cluster serves no Workloads of {GROUP}: install Kueue, or set kueue.enabled: false"
)


class WorkloadCache:
    """The Workloads of all jobs. ``changed`` is told the job of each that is new, is gone or is another.

    Attributes:
        resource: where the API server has them; None while that is not known.
        why: why nothing is known of them; empty once they have been listed.
    """

    def __init__(self, changed: Callable[[JobKey], None]) -> None:
        self._changed = changed
        self._of: dict[tuple[str, str], dict[str, Object]] = {}  # by (namespace, uid of the job), then by name
        self._asked_to_go: set[str] = set()
        self.resource: Resource | None = None
        self.why = "Kueue's Workloads are not known yet"

    def of(self, namespace: str, job_uid: str) -> dict[str, Object]:
        """The Workloads of a job by name, without those that are asked to go. They must not be changed."""
        there = self._of.get((namespace, job_uid), {}).items()
        return {name: each for name, each in there if each["metadata"]["uid"] not in self._asked_to_go}

    def asked_to_go(self, workload: Object) -> None:
        """It is being deleted: nothing is to be read from it any more, though the watch has not told of it yet."""
        self._asked_to_go.add(workload["metadata"]["uid"])

    def keep(self, document: Object) -> Object:
        """See `reflector.Copy`. The pods in it are as we have made them; their numbers are enough."""
        spec = document.get("spec") or {}
        return {
            **without_managed_fields(document),
            "spec": {
                **spec,
                "podSets": [
                    {"name": each["name"], "count": each.get("count", 1)} for each in spec.get("podSets") or ()
                ],
            },
        }

    def replace(self, namespace: str | None, documents: list[Object]) -> None:
        """See `reflector.Copy`."""
        found = {each["metadata"]["uid"] for each in documents}
        for (where, _), known in list(self._of.items()):
            if namespace is None or where == namespace:
                for each in list(known.values()):
                    if each["metadata"]["uid"] not in found:
                        self.change("DELETED", each)
        for document in documents:
            self.change("MODIFIED", document)

    def change(self, kind: str, document: Object) -> None:
        """See `reflector.Copy`."""
        about, owner = document["metadata"], owner_of(document)
        if owner is None:
            return
        place = about["namespace"], owner["uid"]
        if kind == "DELETED" or about.get("deletionTimestamp"):
            self._asked_to_go.discard(about["uid"])
            self._of.get(place, {}).pop(about["name"], None)
            if not self._of.get(place):
                self._of.pop(place, None)
        else:
            self._of.setdefault(place, {})[about["name"]] = document
        self._changed((about["namespace"], owner["name"]))


class Workloads(WorkloadCache):
    """The cache, and what keeps it in step. ``listed`` is called once all are known, for the jobs that wait for that."""

    def __init__(
        self,
        client: Client,
        namespaces: Sequence[str] | None,
        changed: Callable[[JobKey], None],
        listed: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(changed)
        self._client, self._listed = client, listed
        self._scopes: Sequence[str | None] = [None] if namespaces is None else namespaces

    async def run(self) -> None:
        """Never ends by itself. Where Kueue is not installed it waits for it, and says so."""
        self.resource = resource = await self._served()
        log.info("quota is asked for with %s", resource.api_version)
        async with asyncio.TaskGroup() as group:
            reflectors = [
                Reflector(self._client, resource, self, namespace=scope)
                for scope in self._scopes  # all of them: a label may be taken off
            ]
            for reflector in reflectors:
                group.create_task(reflector.run())
            while not all(reflector.done for reflector in reflectors):
                await asyncio.sleep(SYNCED_EVERY_SECONDS)
            self.why = ""
            self._listed()

    async def _served(self) -> Resource:
        """The newest version of Workloads that this cluster has."""
        while True:
            why = _NO_KUEUE
            for version, scope in product(VERSIONS, self._scopes):
                resource = Resource(GROUP, version, "workloads", "Workload")
                try:
                    await anext(self._client.pages(resource, scope, limit=1))
                except NotFound:
                    continue
                except Forbidden as problem:
                    why = f"kueue.enabled is set, and this operator lacks rights for it (docs/kueue.md): {problem}"
                except ApiError as problem:
                    why = f"Kueue's Workloads are not known yet: {problem}"
                else:
                    return resource
            if why != self.why:
                log.error("%s; jobs that name a queue wait", why)
            self.why = why
            await asyncio.sleep(ASK_AGAIN_SECONDS)

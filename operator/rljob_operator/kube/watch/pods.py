"""The informer of pods: every pod that belongs to an RLJob, as the API server last told it, found by its job.

Pods are chosen by label on the server, trimmed as they arrive, and indexed by the job that their controller reference names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.reflector import Reflector
from rljob_operator.kube.apiserver.resources import PODS, RLJOBS, Object
from rljob_operator.kube.render import names
from rljob_operator.kube.watch.trim import same_but_for_the_version, trim

JobKey = tuple[str, str]
"""(namespace, name) of an RLJob."""

OnEvent = Callable[[JobKey, str, Object], None]
"""Told of every change: the job that the pod belongs to, ADDED, MODIFIED or DELETED, and the pod as it is now, or was at last."""


def owner_of(pod: Object) -> Object | None:
    """The reference to the RLJob that controls the pod; None where it has no such owner."""
    for owner in pod["metadata"].get("ownerReferences") or ():
        ours = owner["kind"] == RLJOBS.kind and owner["apiVersion"].startswith(f"{RLJOBS.group}/")
        if ours and owner.get("controller"):
            return dict(owner)
    return None


class PodCache:
    """The pods of all jobs. What it hands out is its own: it must not be changed."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._pods: dict[tuple[str, str], Object] = {}  # by (namespace, name)
        self._jobs: dict[tuple[str, str], dict[str, Object]] = {}  # by (namespace, uid of the job), then by name
        self._uids: dict[JobKey, set[str]] = {}  # of the jobs that have pods

    def of(self, namespace: str, job_uid: str) -> list[Object]:
        """The pods of one job, in no order."""
        return list(self._jobs.get((namespace, job_uid), {}).values())

    def of_key(self, key: JobKey) -> list[Object]:
        """The pods whose job has or had this key, of whichever of the objects that had the name."""
        return [pod for uid in self._uids.get(key, ()) for pod in self.of(key[0], uid)]

    def on_node(self, name: str) -> list[Object]:
        """The pods of all jobs on one node; it looks at each pod there is."""
        return [pod for pod in self._pods.values() if (pod.get("spec") or {}).get("nodeName") == name]

    def get(self, namespace: str, name: str) -> Object | None:
        """One pod."""
        return self._pods.get((namespace, name))

    def jobs(self) -> Iterable[tuple[str, str]]:
        """(namespace, uid) of every job that has pods."""
        return tuple(self._jobs)

    def __len__(self) -> int:
        return len(self._pods)

    def keep(self, document: Object) -> Object:
        """See `reflector.Copy`."""
        return trim(document)

    def replace(self, namespace: str | None, documents: list[Object]) -> None:
        """See `reflector.Copy`; whatever was missed is told as the event it would have been."""
        found = {_place(pod) for pod in documents}
        gone = [
            pod
            for place, pod in self._pods.items()
            if place not in found and (namespace is None or place[0] == namespace)
        ]
        for pod in gone:
            self.change("DELETED", pod)
        for pod in documents:
            self.change("MODIFIED", pod)

    def change(self, kind: str, document: Object) -> None:
        """See `reflector.Copy`. A pod without a job as its owner is none of ours, whatever its labels say."""
        place = _place(document)
        known = self._pods.get(place)
        if kind == "DELETED":
            if known is not None:
                self._remove(place, known)
                self._tell(kind, document)
            return
        if known is not None and known["metadata"]["uid"] != document["metadata"]["uid"]:
            self._remove(place, known)  # its end was missed, and somebody else has its name
            self._tell("DELETED", known)
            known = None
        owner = owner_of(document)
        if owner is None:
            if known is not None:
                self._remove(place, known)
                self._tell("DELETED", known)
            return
        self._pods[place] = document
        self._uids.setdefault((place[0], owner["name"]), set()).add(owner["uid"])
        self._jobs.setdefault((place[0], owner["uid"]), {})[place[1]] = document
        if known is None:
            self._tell("ADDED", document)
        elif not same_but_for_the_version(known, document):
            self._tell("MODIFIED", document)

    def _remove(self, place: tuple[str, str], pod: Object) -> None:
        del self._pods[place]
        owner = owner_of(pod)
        assert owner is not None, "only pods with an owner are kept"
        index = (place[0], owner["uid"])
        del self._jobs[index][place[1]]
        if not self._jobs[index]:
            del self._jobs[index]
            uids = self._uids[place[0], owner["name"]]
            uids.discard(owner["uid"])
            if not uids:
                del self._uids[place[0], owner["name"]]

    def _tell(self, kind: str, pod: Object) -> None:
        owner = owner_of(pod)
        if owner is not None:
            self._on_event((pod["metadata"]["namespace"], owner["name"]), kind, pod)


class Pods(PodCache):
    """The cache, and what keeps it in step: in the given namespaces, or in all (None)."""

    def __init__(self, client: Client, namespaces: Sequence[str] | None, on_event: OnEvent, **options: Any) -> None:
        super().__init__(on_event)
        scopes: Sequence[str | None] = [None] if namespaces is None else namespaces
        self._reflectors = [
            Reflector(client, PODS, self, namespace=scope, label_selector=names.SELECTOR, **options) for scope in scopes
        ]

    async def run(self) -> None:
        """Never ends by itself."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())

    @property
    def synced(self) -> bool:
        """Whether every namespace has been listed once."""
        return all(reflector.synced.is_set() for reflector in self._reflectors)

    async def wait_synced(self) -> None:
        """Return when every namespace has been listed once."""
        for reflector in self._reflectors:
            await reflector.synced.wait()

    @property
    def age_seconds(self) -> float:
        """Since the API server was last heard of the namespace that it is longest of."""
        return max(reflector.age_seconds for reflector in self._reflectors)


def _place(pod: Object) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]

"""The informer of pods: every pod that belongs to an RLJob, as the API server last told it, found by its job.

A pod belongs to the job that its controller reference names, whatever its labels say, which a policy engine or a person may take
off. So all pods are watched: those of jobs are trimmed as they arrive and indexed by their job, and the others are not kept.

Nothing keeps a pod until its end has been counted: it may go at any time. So the last that was seen of one that has gone is kept
until it is settled, which is when a reconciliation has stored what followed from its end.

What the controller keeps of a pod: a fraction of what the API server sends, in the same shape.

A cache of thousands of pods lives by this. Strings that many pods share are kept once, lists and maps that say nothing are left
out, and what is kept is never changed afterwards, so that pods may share it.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from sys import intern
from typing import Any

from rljob.api.timestamps import rfc3339

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.reflector import Reflector
from rljob_operator.kube.apiserver.resources import PODS, RLJOBS, Object
from rljob_operator.kube.render import names

LONGEST_TEXT = 1024
LONGEST_LAST_WORDS = 4096
"""What a kubelet takes of a termination message."""

_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
_OWNER = ("apiVersion", "kind", "name", "uid", "controller")
_SPEC = ("nodeName", "hostname", "terminationGracePeriodSeconds")
_STATUS = ("phase", "reason", "message", "podIP", "startTime")
_CONDITION = ("type", "status", "reason", "message", "lastTransitionTime")
_CONTAINER = ("name", "ready", "started", "restartCount")
_WAITING = ("reason", "message")
_RUNNING = ("startedAt",)
_TERMINATED = ("exitCode", "signal", "reason", "message", "startedAt", "finishedAt")
_OF_ONE_POD = frozenset(
    {"uid", "resourceVersion", "message", "podIP"} | {name for name in _METADATA if name.endswith("Timestamp")}
)
"""Values that no other pod has: interning them would only cost."""


def trim(pod: Mapping[str, Any]) -> Object:
    """The part of a pod that is kept. Whatever is missing in the pod is missing in it, too."""
    about, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    metadata = _some(about, _METADATA)
    grace = about.get("deletionGracePeriodSeconds")
    if grace is not None:
        metadata["deletionGracePeriodSeconds"] = grace
    _put(metadata, "labels", {intern(name): intern(value) for name, value in (about.get("labels") or {}).items()})
    ours = (about.get("annotations") or {}).items()
    _put(metadata, "annotations", {intern(name): value for name, value in ours if name.startswith(names.OURS)})
    _put(metadata, "finalizers", [intern(name) for name in about.get("finalizers") or ()])
    _put(metadata, "ownerReferences", [_some(owner, _OWNER, ()) for owner in about.get("ownerReferences") or ()])
    state = _some(status, _STATUS)
    _put(state, "conditions", [_some(condition, _CONDITION) for condition in status.get("conditions") or ()])
    for name in ("containerStatuses", "initContainerStatuses"):
        _put(state, name, [_container(each) for each in status.get(name) or ()])
    trimmed: Object = {"metadata": metadata}
    kept = _some(spec, _SPEC)
    _put(kept, "schedulingGates", [_some(gate, ("name",)) for gate in spec.get("schedulingGates") or ()])
    _put(trimmed, "spec", kept)
    _put(trimmed, "status", state)
    return trimmed


def same_but_for_the_version(one: Object, other: Object) -> bool:
    """Whether nothing has changed that is kept."""
    if one.get("status") != other.get("status") or one.get("spec") != other.get("spec"):
        return False
    first, second = one["metadata"], other["metadata"]
    return {**first, "resourceVersion": ""} == {**second, "resourceVersion": ""}


def _container(status: Mapping[str, Any]) -> Object:
    kept = _some(status, _CONTAINER)
    for name in ("state", "lastState"):
        _put(kept, name, _state(status.get(name) or {}))
    return kept


def _state(state: Mapping[str, Any]) -> Object:
    kept: Object = {}
    if state.get("waiting") is not None:
        kept["waiting"] = _some(state["waiting"], _WAITING)
    if state.get("running") is not None:
        kept["running"] = _some(state["running"], _RUNNING)
    if state.get("terminated") is not None:
        kept["terminated"] = _some(state["terminated"], _TERMINATED, longest=LONGEST_LAST_WORDS)
    return kept


def _some(
    given: Mapping[str, Any], names: Iterable[str], alone: Iterable[str] = _OF_ONE_POD, longest: int = LONGEST_TEXT
) -> Object:
    """The named fields, those that are there and say something."""
    kept: Object = {}
    for name in names:
        value = given.get(name)
        if value is None or value == "":
            continue
        if isinstance(value, str):
            value = value[:longest] if name in alone else intern(value[:longest])
        kept[name] = value
    return kept


def _put(into: Object, name: str, value: Any) -> None:
    if value:
        into[name] = value


JobKey = tuple[str, str]
"""(namespace, name) of an RLJob."""

SYNCED_EVERY_SECONDS = 0.1
DISOWNED = {
    "phase": "Failed",
    "reason": "Disowned",
    "message": "its owner reference was taken off, so it is no longer the job's; it may run on until it is deleted by hand",
}
"""The status of a pod, for its job, that lives on without one."""

OnEvent = Callable[[JobKey, str, Object], None]
"""Told of every change: the job that the pod belongs to, ADDED, MODIFIED or DELETED, and the pod as it is now, or was at last."""


def owner_of(pod: Mapping[str, Any]) -> Object | None:
    """The reference to the RLJob that controls the pod; None where it has no such owner."""
    for owner in pod["metadata"].get("ownerReferences") or ():
        ours = owner["kind"] == RLJOBS.kind and owner["apiVersion"].startswith(f"{RLJOBS.group}/")
        if ours and owner.get("controller"):
            return dict(owner)
    return None


def is_gone(pod: Mapping[str, Any]) -> bool:
    """Whether the API server no longer has the pod."""
    return "gone" in pod


class PodCache:
    """The pods of all jobs, and those that are gone and not settled yet. What it hands out is its own: it must not be changed."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._pods: dict[tuple[str, str], Object] = {}  # by (namespace, name)
        self._settled: set[str] = set()  # uids of pods that are there still, of which nothing is to be kept
        self._jobs: dict[tuple[str, str], dict[str, Object]] = {}  # by (namespace, uid of the job), then by the pod's
        self._uids: dict[JobKey, set[str]] = {}  # of the jobs that have pods

    def of(self, namespace: str, job_uid: str) -> list[Object]:
        """The pods of one job, in no order."""
        return list(self._jobs.get((namespace, job_uid), {}).values())

    def of_key(self, key: JobKey) -> list[Object]:
        """The pods whose job has or had this key, of whichever of the objects that had the name."""
        return [pod for uid in self._uids.get(key, ()) for pod in self.of(key[0], uid)]

    def settle(self, pod: Mapping[str, Any]) -> None:
        """What followed from the pod's end is stored: nothing of it is kept any longer than it is there."""
        if is_gone(pod):
            self._forget(pod)
        elif self._pods.get(_place(pod), {}).get("metadata", {}).get("uid") == pod["metadata"]["uid"]:
            self._settled.add(pod["metadata"]["uid"])

    def on_node(self, name: str) -> list[Object]:
        """The pods of all jobs on one node; it goes through all pods."""
        return [pod for pod in self._pods.values() if (pod.get("spec") or {}).get("nodeName") == name]

    def check(self, namespace: str) -> None:
        """Raises why the pods of a namespace may not be read, where they may not."""

    def jobs(self) -> Iterable[JobKey]:
        """The keys of every job that has pods."""
        return tuple(self._uids)

    def __len__(self) -> int:
        return len(self._pods)

    def keep(self, document: Object) -> Object:
        """See `reflector.Copy`. A member's pod has a host name; one that judges a run or reads a checkpoint has none."""
        about = document["metadata"]
        if owner_of(document) is not None and (document.get("spec") or {}).get("hostname"):
            return trim(document)
        return {"metadata": {name: about[name] for name in ("namespace", "name", "uid")}}

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
        known, owner = self._pods.get(_place(document)), owner_of(document)
        if kind == "DELETED":
            if known is not None:
                self._bury(document if owner is not None else known)
            return
        if known is not None and known["metadata"]["uid"] != document["metadata"]["uid"]:
            self._bury(known)  # its end was missed, and another one has its name
            known = None
        if owner is None:
            if known is not None:
                self._bury({**known, "status": {**known.get("status", {}), **DISOWNED}})
            return
        self._put(document)
        if known is None:
            self._tell("ADDED", document)
        elif not same_but_for_the_version(known, document):
            self._tell("MODIFIED", document)

    def _put(self, pod: Object) -> None:
        """Keep a pod that has an owner; no other comes here."""
        namespace, uid, owner = pod["metadata"]["namespace"], pod["metadata"]["uid"], owner_of(pod) or {}
        if not is_gone(pod):
            self._pods[_place(pod)] = pod
        self._uids.setdefault((namespace, owner["name"]), set()).add(owner["uid"])
        self._jobs.setdefault((namespace, owner["uid"]), {})[uid] = pod

    def _bury(self, pod: Object) -> None:
        """The pod is gone: what was seen of it at last is kept where it is not settled."""
        del self._pods[_place(pod)]
        self._forget(pod)
        if pod["metadata"]["uid"] in self._settled:
            self._settled.remove(pod["metadata"]["uid"])
        else:
            self._put(_remains(pod))
        self._tell("DELETED", pod)

    def _forget(self, pod: Mapping[str, Any]) -> None:
        namespace, uid, owner = pod["metadata"]["namespace"], pod["metadata"]["uid"], owner_of(pod) or {}
        index = (namespace, owner.get("uid", ""))
        self._jobs.get(index, {}).pop(uid, None)
        if index in self._jobs and not self._jobs[index]:
            del self._jobs[index]
            uids = self._uids[namespace, owner["name"]]
            uids.discard(owner["uid"])
            if not uids:
                del self._uids[namespace, owner["name"]]

    def _tell(self, kind: str, pod: Object) -> None:
        self._on_event((pod["metadata"]["namespace"], (owner_of(pod) or {})["name"]), kind, pod)


class Pods(PodCache):
    """The cache, and what keeps it in step: in the given namespaces, or in all (None)."""

    def __init__(self, client: Client, namespaces: Sequence[str] | None, on_event: OnEvent, **options: Any) -> None:
        super().__init__(on_event)
        self._reflectors = [
            Reflector(client, PODS, self, namespace=scope, **options) for scope in namespaces or (None,)
        ]

    async def run(self) -> None:
        """Never ends by itself."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())

    def check(self, namespace: str) -> None:
        """See `PodCache.check`."""
        for reflector in self._reflectors:
            if reflector.refused is not None and reflector.namespace in (None, namespace):
                raise reflector.refused

    @property
    def synced(self) -> bool:
        """Whether every namespace that may be read has been listed once."""
        return all(reflector.done for reflector in self._reflectors)

    async def wait_synced(self) -> None:
        """Return when every namespace that may be read has been listed once."""
        while not self.synced:
            await asyncio.sleep(SYNCED_EVERY_SECONDS)

    @property
    def age_seconds(self) -> float:
        """Since the API server was last heard of the namespace that it is longest of. Those that may not be read do not count,
        unless that is all of them."""
        ages = [reflector.age_seconds for reflector in self._reflectors if reflector.refused is None]
        return max(ages or [reflector.age_seconds for reflector in self._reflectors])


def _remains(pod: Object) -> Object:
    """What is kept of a pod that is gone: the last that was seen of it. One that had not ended by then was deleted."""
    about, status = pod["metadata"], pod.get("status") or {}
    if status.get("phase") not in ("Failed", "Succeeded"):
        deleted = about.get("deletionTimestamp") or rfc3339(time.time())
        about, status = {**about, "deletionTimestamp": deleted}, {**status, "phase": "Failed"}
    return {**pod, "metadata": about, "status": status, "gone": True}


def _place(pod: Mapping[str, Any]) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]

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
from typing import Any, Final

from rljob.api.status_model import rfc3339

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.reflector import Reflector, run_all
from rljob_operator.kube.apiserver.resources import PODS, Object
from rljob_operator.kube.render import names
from rljob_operator.kube.watch.kept import JobKey as JobKey, Kept, owner_of as owner_of, place_of

LONGEST_TEXT = 1024
LONGEST_LAST_WORDS = 4096
"""What a kubelet takes of a termination message."""


def _shared(value: Any) -> Any:
    return intern(value[:LONGEST_TEXT]) if isinstance(value, str) else value


def _own(value: Any) -> Any:
    """A value that no other pod has: interning it would only cost."""
    return value[:LONGEST_TEXT] if isinstance(value, str) else value


def _last_words(value: str) -> str:
    return value[:LONGEST_LAST_WORDS]


def _labels(value: Mapping[str, str]) -> dict[str, str]:
    return {intern(name): intern(text) for name, text in value.items()}


def _annotations(value: Mapping[str, str]) -> dict[str, str]:
    return {intern(name): text for name, text in value.items() if name.startswith(names.OURS)}


_STATE: Final = {
    "waiting": {"reason": _shared, "message": _own},
    "running": {"startedAt": _shared},
    "terminated": {
        **dict.fromkeys(("exitCode", "signal", "reason"), _shared),
        "message": _last_words,
        **dict.fromkeys(("startedAt", "finishedAt"), _shared),
    },
}
_CONTAINER: Final = {
    **dict.fromkeys(("name", "ready", "started", "restartCount"), _shared),
    "state": _STATE,
    "lastState": _STATE,
}
_KEPT: Final = {
    "metadata": {
        **dict.fromkeys(("name", "namespace"), _shared),
        **dict.fromkeys(("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"), _own),
        "deletionGracePeriodSeconds": _own,
        "labels": _labels,
        "annotations": _annotations,
        "finalizers": [_shared],
        "ownerReferences": [dict.fromkeys(("apiVersion", "kind", "name", "uid", "controller"), _shared)],
    },
    "spec": {
        **dict.fromkeys(("nodeName", "hostname", "terminationGracePeriodSeconds"), _shared),
        "schedulingGates": [{"name": _shared}],
    },
    "status": {
        **dict.fromkeys(("phase", "reason"), _shared),
        **dict.fromkeys(("message", "podIP"), _own),
        "startTime": _shared,
        "conditions": [
            {**dict.fromkeys(("type", "status", "reason"), _shared), "message": _own, "lastTransitionTime": _shared}
        ],
        "containerStatuses": [_CONTAINER],
        "initContainerStatuses": [_CONTAINER],
    },
}
"""Each field that is kept, and how: its fields, each entry of its list, or what is made of its value."""


def trim(pod: Mapping[str, Any]) -> Object:
    """The part of a pod that is kept. Whatever is missing in the pod, or says nothing, is missing in it, too."""
    found: Object = _kept(pod, _KEPT)
    return found


def _kept(value: Any, form: Any) -> Any:
    if isinstance(form, list):
        return [_kept(each, form[0]) for each in value]
    if callable(form):
        return form(value)
    kept = {name: _kept(value[name], below) for name, below in form.items() if value.get(name) is not None}
    return {name: each for name, each in kept.items() if each not in ("", [], {})}


def same_but_for_the_version(one: Object, other: Object) -> bool:
    """Whether nothing has changed that is kept."""
    if one.get("status") != other.get("status") or one.get("spec") != other.get("spec"):
        return False
    first, second = one["metadata"], other["metadata"]
    return {**first, "resourceVersion": ""} == {**second, "resourceVersion": ""}


SYNCED_EVERY_SECONDS = 0.1
DISOWNED = {
    "phase": "Failed",
    "reason": "Disowned",
    "message": "its owner reference was taken off, so it is no longer the job's; it may run on until it is deleted by hand",
}
"""The status of a pod, for its job, that lives on without one."""

OnEvent = Callable[[JobKey, str, Object], None]
"""Told of every change: the job that the pod belongs to, ADDED, MODIFIED or DELETED, and the pod as it is now, or was at last."""


def is_gone(pod: Mapping[str, Any]) -> bool:
    """Whether the API server no longer has the pod."""
    return "gone" in pod


class PodCache(Kept):
    """The pods of all jobs, and those that are gone and not settled yet."""

    def __init__(self, on_event: OnEvent) -> None:
        super().__init__()
        self._on_event = on_event
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
        elif self._all.get(place_of(pod), {}).get("metadata", {}).get("uid") == pod["metadata"]["uid"]:
            self._settled.add(pod["metadata"]["uid"])

    def on_node(self, name: str) -> list[Object]:
        """The pods of all jobs on one node; it goes through all pods."""
        return [pod for pod in self._all.values() if (pod.get("spec") or {}).get("nodeName") == name]

    def check(self, namespace: str) -> None:
        """Raises why the pods of a namespace may not be read, where they may not."""

    def jobs(self) -> Iterable[JobKey]:
        """The keys of every job that has pods."""
        return tuple(self._uids)

    def keep(self, document: Object) -> Object:
        """See `reflector.Copy`. A member's pod has a host name; one that judges a run or reads a checkpoint has none."""
        about = document["metadata"]
        if owner_of(document) is not None and (document.get("spec") or {}).get("hostname"):
            return trim(document)
        return {"metadata": {name: about[name] for name in ("namespace", "name", "uid")}}

    def change(self, kind: str, document: Object) -> None:
        """See `reflector.Copy`. A pod without a job as its owner is none of ours, whatever its labels say."""
        known, owner = self._all.get(place_of(document)), owner_of(document)
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
            self._all[place_of(pod)] = pod
        self._uids.setdefault((namespace, owner["name"]), set()).add(owner["uid"])
        self._jobs.setdefault((namespace, owner["uid"]), {})[uid] = pod

    def _bury(self, pod: Object) -> None:
        """The pod is gone: what was seen of it at last is kept where it is not settled."""
        del self._all[place_of(pod)]
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
        await run_all(self._reflectors)

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

"""All objects of a kind as the API server last told them, found by their names: copies that reflectors keep in step. Which nodes
are lost; which of a job's children have gone, are going, or were changed by another client; and the Workloads by which jobs ask
Kueue for quota.

Of a child only the place and the owner are kept, whether it is going, who has written which of its fields, and of a claim which
volume it has. Secrets are not among them: only the jobs' own pods need to know of them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rljob_operator.kube.apiserver.client import FIELD_MANAGER, Client
from rljob_operator.kube.apiserver.errors import NotFound
from rljob_operator.kube.apiserver.reflector import Reflector, run_all
from rljob_operator.kube.apiserver.resources import (
    CONFIG_MAPS,
    NETWORK_POLICIES,
    RLJOBS,
    SERVICES,
    VOLUME_CLAIMS,
    WORKLOADS,
    Object,
    without_managed_fields,
)
from rljob_operator.kube.render import names

JobKey = tuple[str, str]
"""(namespace, name) of an RLJob."""


class Kept:
    """A copy for a `Reflector`. ``changed`` is told each object that is new, is another, or is gone. What it hands out is never
    to be changed."""

    def __init__(self, changed: Callable[[Object], None] = lambda found: None) -> None:
        self._changed = changed
        self._all: dict[tuple[str, str], Object] = {}  # by (namespace, name)

    def __len__(self) -> int:
        return len(self._all)

    def get(self, namespace: str, name: str) -> Object | None:
        """The object; None where there is none."""
        return self._all.get((namespace, name))

    def labelled(self, namespace: str, label: str, value: str) -> list[Object]:
        """Those of a namespace that have a label."""
        here = [each for (where, _), each in self._all.items() if where == namespace]
        return [each for each in here if (each["metadata"].get("labels") or {}).get(label) == value]

    def keep(self, document: Object) -> Object:
        """See `reflector.Copy`."""
        return without_managed_fields(document)

    def replace(self, namespace: str | None, documents: list[Object]) -> None:
        """See `reflector.Copy`; whatever was missed is told as the event it would have been."""
        found = {place_of(each) for each in documents}
        for place, each in list(self._all.items()):
            if place not in found and namespace in (None, place[0]):
                self.change("DELETED", each)
        for each in documents:
            self.change("MODIFIED", each)

    def change(self, kind: str, document: Object) -> None:
        """See `reflector.Copy`."""
        before = self._all.pop(place_of(document), None)
        if kind != "DELETED":
            self._all[place_of(document)] = document
        self._seen(before, document, kind != "DELETED")

    def _seen(self, before: Object | None, document: Object, there: bool) -> None:
        """``document`` has taken the place of ``before``, or is no longer ``there``."""
        self._changed(document)


def place_of(document: Mapping[str, Any]) -> tuple[str, str]:
    """(namespace, name)."""
    return document["metadata"]["namespace"], document["metadata"]["name"]


def owner_of(pod: Mapping[str, Any]) -> Object | None:
    """The reference to the RLJob that controls the pod; None where it has no such owner."""
    for owner in pod["metadata"].get("ownerReferences") or ():
        ours = owner["kind"] == RLJOBS.kind and owner["apiVersion"].startswith(f"{RLJOBS.group}/")
        if ours and owner.get("controller"):
            return dict(owner)
    return None


class NodeCache(Kept):
    """Which nodes are lost: their kubelets have not been heard of for the cluster's grace period. An operator of single
    namespaces may not be allowed to read nodes; then every node counts as fine. A node that is deleted takes its pods with it,
    and the watch of pods tells that.

    ``on_change`` is told the name of each that is lost or found.
    """

    def __init__(self, on_change: Callable[[str], None]) -> None:
        super().__init__()
        self._on_change = on_change

    def lost(self, name: str) -> bool:
        """Whether nothing is heard of the node; one that is not known is fine."""
        return bool((self.get("", name) or {}).get("lost"))

    def keep(self, document: Object) -> Object:
        """See `reflector.Copy`."""
        conditions = (document.get("status") or {}).get("conditions") or ()
        lost = any(each.get("type") == "Ready" and each.get("status") == "Unknown" for each in conditions)
        return {"metadata": {"namespace": "", "name": document["metadata"]["name"]}, "lost": lost}

    def _seen(self, before: Object | None, document: Object, there: bool) -> None:
        if bool(before and before["lost"]) != (there and document["lost"]):
            self._on_change(document["metadata"]["name"])


_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""On a claim that waited for its first pod: the node that the scheduler chose then."""


class ChildrenOfOneKind(Kept):
    """The children of one kind that are there. ``gone`` is told the job and the uid of each that is not any more, is going, or is
    not ``as_made`` any more; claims of no job are among them, as jobs may name those of users."""

    def __init__(self, gone: Callable[[JobKey, str], None], *, as_made: bool) -> None:
        super().__init__()
        self._gone, self._as_made = gone, as_made

    def keep(self, document: Object) -> Object:
        """See `reflector.Copy`."""
        about, owner = document["metadata"], owner_of(document)
        found = {
            "metadata": {"namespace": about["namespace"], "name": about["name"]},
            "uid": about["uid"],
            "job": (about["namespace"], owner["name"] if owner is not None else ""),
            "going": "deletionTimestamp" in about,
        }
        if not self._as_made:
            # What a pod that waits for this claim may wait for. Its class is None where there is no default one.
            spec = document.get("spec") or {}
            return found | {
                "bound": (document.get("status") or {}).get("phase") == "Bound",
                "class": spec.get("storageClassName"),
                "volume": spec.get("volumeName", ""),
                "node": (about.get("annotations") or {}).get(_SELECTED_NODE, ""),
            }
        writers = about.get("managedFields") or ()
        told = [{**each, "time": each["manager"] == FIELD_MANAGER or each.get("time")} for each in writers]
        return found | {"writers": hash(str(told))}

    def _seen(self, before: Object | None, document: Object, there: bool) -> None:
        same = before is not None and before["uid"] == document["uid"]
        if before is not None and not (there and same and document.get("writers") == before.get("writers")):
            self._gone(before["job"], before["uid"])
        if there and document["going"] and not (before is not None and same and before["going"]):
            self._gone(document["job"], document["uid"])


class ChildWatch:
    """Watches the children of all jobs in the given namespaces (None: in all). All but claims, whose end costs what was learned,
    are chosen by their labels: one that has lost them counts as gone, and is found by its name. A claim is changed by the cluster
    itself, and is never written again."""

    def __init__(self, client: Client, namespaces: Sequence[str] | None, gone: Callable[[JobKey, str], None]) -> None:
        self._copies = {
            each: ChildrenOfOneKind(gone, as_made=each is not VOLUME_CLAIMS)
            for each in (CONFIG_MAPS, SERVICES, NETWORK_POLICIES, VOLUME_CLAIMS)
        }
        self._reflectors = [
            Reflector(client, resource, copy, namespace=scope, label_selector=selector)
            for resource, copy in self._copies.items()
            for selector in ["" if resource is VOLUME_CLAIMS else names.SELECTOR]
            for scope in namespaces or (None,)
        ]

    def claim(self, namespace: str, name: str) -> Object | None:
        """What is kept of a claim; None where none is known. One that is being deleted is there for as long as a pod uses it."""
        return self._copies[VOLUME_CLAIMS].get(namespace, name)

    async def run(self) -> None:
        """Never ends by itself."""
        await run_all(self._reflectors)


class Workloads(Kept):
    """The Workloads of all jobs in the given namespaces (None: in all). ``changed`` is told the job of each that is new,
    is gone or is another; ``listed`` is called once all are known, for the jobs that wait for that."""

    def __init__(
        self,
        client: Client,
        namespaces: Sequence[str] | None,
        changed: Callable[[JobKey], None],
        listed: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(
            lambda found: changed((found["metadata"]["namespace"], found["job"])) if found["job"] else None
        )
        self._listed = listed
        self._reflectors = [Reflector(client, WORKLOADS, self, namespace=scope) for scope in namespaces or (None,)]

    async def run(self) -> None:
        """Never ends by itself. Where Kueue is not installed it waits for it."""
        await run_all(self._reflectors)

    @property
    def why(self) -> str:
        """Why nothing is known of them; empty once they have been listed. A namespace that may not be read is not waited for
        where another one may."""
        refused = [each.refused for each in self._reflectors if each.refused is not None]
        if refused and len(refused) == len(self._reflectors):
            if isinstance(refused[0], NotFound):
                return (
                    f"kueue.enabled is set, and this cluster serves no Workloads of {WORKLOADS.api_version}: install Kueue, or "
                    "set kueue.enabled: false"
                )
            return f"kueue.enabled is set, and this operator lacks rights for it (docs/kueue.md): {refused[0]}"
        return "" if all(each.done for each in self._reflectors) else "Kueue's Workloads are not known yet"

    def of(self, namespace: str, job_uid: str) -> dict[str, Object]:
        """The Workloads of a job by name, without those that go. They must not be changed."""
        return {name: each for (where, name), each in self._all.items() if (where, each["uid"]) == (namespace, job_uid)}

    def keep(self, document: Object) -> Object:
        """See `reflector.Copy`. The pods in it are as we have made them; their numbers are enough. One that goes is of no use to
        its job any more, which is told of it all the same; of others' only the place is kept."""
        about, spec, owner = document["metadata"], document["spec"], owner_of(document)
        if owner is None:
            return {"metadata": {name: about[name] for name in ("namespace", "name")}, "job": "", "uid": ""}
        sets = [{"name": each["name"], "count": each.get("count", 1)} for each in spec["podSets"]]
        found = {**super().keep(document), "spec": {**spec, "podSets": sets}}
        return found | {"job": owner["name"], "uid": "" if about.get("deletionTimestamp") else owner["uid"]}

    def replace(self, namespace: str | None, documents: list[Object]) -> None:
        """See `reflector.Copy`."""
        super().replace(namespace, documents)
        if self.why:
            self._listed()

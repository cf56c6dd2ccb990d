"""All objects of a kind as the API server last told them, found by their names; and which nodes are lost."""

from collections.abc import Callable, Mapping
from typing import Any

from rljob_operator.kube.apiserver.resources import Object, without_managed_fields

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
        return {"metadata": {"namespace": "", "name": document["metadata"]["name"]}, "lost": _is_lost(document)}

    def _seen(self, before: Object | None, document: Object, there: bool) -> None:
        if bool(before and before["lost"]) != (there and document["lost"]):
            self._on_change(document["metadata"]["name"])


def _is_lost(document: Mapping[str, Any]) -> bool:
    conditions = (document.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "Unknown" for each in conditions)

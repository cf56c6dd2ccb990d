"""What the controller knows of nodes: which ones are lost."""

from collections.abc import Callable, Mapping
from typing import Any

from rljob_operator.kube.apiserver.resources import Object


class NodeCache:
    """The nodes that are lost: their kubelets have not been heard of for the cluster's grace period. An operator of single
    namespaces may not be allowed to read nodes; then every node counts as fine.

    ``on_change`` is told the name of each that is lost or found.
    """

    def __init__(self, on_change: Callable[[str], None]) -> None:
        self._on_change = on_change
        self._lost: set[str] = set()

    def lost(self, name: str) -> bool:
        """Whether nothing is heard of the node; one that is not known is fine."""
        return name in self._lost

    def keep(self, document: Object) -> Object:
        """See `reflector.Copy`."""
        about = document["metadata"]
        return {
            "metadata": {"name": about["name"], "resourceVersion": about.get("resourceVersion", "")},
            "lost": _is_lost(document),
        }

    def replace(self, namespace: str | None, documents: list[Object]) -> None:
        """See `reflector.Copy`."""
        for name in self._lost - {each["metadata"]["name"] for each in documents}:
            self._note(name, lost=False)
        for document in documents:
            self.change("MODIFIED", document)

    def change(self, kind: str, document: Object) -> None:
        """See `reflector.Copy`. A node that is deleted takes its pods with it, and the watch of pods tells that."""
        self._note(document["metadata"]["name"], lost=kind != "DELETED" and document["lost"])

    def _note(self, name: str, *, lost: bool) -> None:
        if lost == self.lost(name):
            return
        (self._lost.add if lost else self._lost.remove)(name)
        self._on_change(name)


def _is_lost(document: Mapping[str, Any]) -> bool:
    conditions = (document.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "Unknown" for each in conditions)

"""What the controller knows of nodes: which ones are lost."""

from collections.abc import Callable, Mapping
from typing import Any

from rljob_operator.kube.apiserver.resources import Object
from rljob_operator.kube.watch.kept import Kept


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

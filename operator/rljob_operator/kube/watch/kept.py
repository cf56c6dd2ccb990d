"""All objects of a kind as the API server last told them, found by their names."""

from collections.abc import Callable

from rljob_operator.kube.apiserver.resources import Object, without_managed_fields
from rljob_operator.kube.watch.pods import JobKey


class Kept:
    """A copy for a `Reflector`. ``changed`` is told each object that is new, is another, or is gone."""

    def __init__(self, changed: Callable[[Object], None]) -> None:
        self._changed = changed
        self._all: dict[JobKey, Object] = {}

    def get(self, namespace: str, name: str) -> Object | None:
        """The object, which must not be changed; None where there is none."""
        return self._all.get((namespace, name))

    def labelled(self, namespace: str, label: str, value: str) -> list[Object]:
        """Those of a namespace that have a label."""
        here = [each for (where, _), each in self._all.items() if where == namespace]
        return [each for each in here if (each["metadata"].get("labels") or {}).get(label) == value]

    def keep(self, document: Object) -> Object:
        """See `reflector.Copy`."""
        return without_managed_fields(document)

    def replace(self, namespace: str | None, documents: list[Object]) -> None:
        """See `reflector.Copy`."""
        found = {_key(each) for each in documents}
        for key, each in list(self._all.items()):
            if key not in found and namespace in (None, key[0]):
                self.change("DELETED", each)
        for each in documents:
            self.change("MODIFIED", each)

    def change(self, kind: str, document: Object) -> None:
        """See `reflector.Copy`."""
        if kind == "DELETED":
            self._all.pop(_key(document), None)
        else:
            self._all[_key(document)] = document
        self._changed(document)


def _key(document: Object) -> JobKey:
    return document["metadata"]["namespace"], document["metadata"]["name"]

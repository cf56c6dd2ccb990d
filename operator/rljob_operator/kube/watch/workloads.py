"""The Workloads by which jobs ask Kueue for quota, as the API server last told them, found by their job."""

from collections.abc import Callable, Sequence
from typing import Final

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import NotFound
from rljob_operator.kube.apiserver.reflector import Reflector, run_all
from rljob_operator.kube.apiserver.resources import WORKLOADS, Object
from rljob_operator.kube.watch.kept import JobKey, Kept
from rljob_operator.kube.watch.pods import owner_of

_NO_KUEUE: Final = (
    f"kueue.enabled is set, and this cluster serves no Workloads of {WORKLOADS.api_version}: install Kueue, or set "
    "kueue.enabled: false"
)


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
                return _NO_KUEUE
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

"""Tells when a job's child has gone or is going, or another client has changed it: a ConfigMap, Service, NetworkPolicy or claim.

Only the place and the owner of each child are kept, whether it is going, and who has written which of its fields.
Secrets are not among them: only the jobs' own pods need to know of them.
"""

from collections.abc import Callable, Sequence
from typing import Final

from rljob_operator.kube.apiserver.client import FIELD_MANAGER, Client
from rljob_operator.kube.apiserver.reflector import Reflector, run_all
from rljob_operator.kube.apiserver.resources import (
    CONFIG_MAPS,
    NETWORK_POLICIES,
    SERVICES,
    VOLUME_CLAIMS,
    Object,
)
from rljob_operator.kube.render import names
from rljob_operator.kube.watch.kept import JobKey, Kept
from rljob_operator.kube.watch.pods import owner_of

WATCHED: Final = (CONFIG_MAPS, SERVICES, NETWORK_POLICIES, VOLUME_CLAIMS)


class ChildrenOfOneKind(Kept):
    """The children of one kind that are there. ``gone`` is told the job and the uid of each that is not any more, is going, or is
    not ``as_made`` any more; claims of no job are among them, as jobs may name those of users."""

    def __init__(self, gone: Callable[[JobKey, str], None], *, as_made: bool) -> None:
        super().__init__()
        self._gone, self._as_made = gone, as_made

    def keep(self, document: Object) -> Object:
        """See `reflector.Copy`."""
        about, owner = document["metadata"], owner_of(document)
        return {
            "metadata": {"namespace": about["namespace"], "name": about["name"]},
            "uid": about["uid"],
            "job": (about["namespace"], owner["name"] if owner is not None else ""),
            "going": "deletionTimestamp" in about,
            "writers": hash(
                str(
                    [
                        {**each, "time": each["manager"] == FIELD_MANAGER or each.get("time")}
                        for each in about.get("managedFields") or ()
                        if self._as_made
                    ]
                )
            ),
        }

    def _seen(self, before: Object | None, document: Object, there: bool) -> None:
        same = before is not None and before["uid"] == document["uid"]
        if before is not None and not (there and same and document["writers"] == before["writers"]):
            self._gone(before["job"], before["uid"])
        if there and document["going"] and not (before is not None and same and before["going"]):
            self._gone(document["job"], document["uid"])


class ChildWatch:
    """Watches the children of all jobs in the given namespaces (None: in all). All but claims, whose end costs what was learned,
    are chosen by their labels: one that has lost them counts as gone, and is found by its name. A claim is changed by the cluster
    itself, and is never written again."""

    def __init__(self, client: Client, namespaces: Sequence[str] | None, gone: Callable[[JobKey, str], None]) -> None:
        self._copies = {each: ChildrenOfOneKind(gone, as_made=each is not VOLUME_CLAIMS) for each in WATCHED}
        self._reflectors = [
            Reflector(client, resource, copy, namespace=scope, label_selector=selector)
            for resource, copy in self._copies.items()
            for selector in ["" if resource is VOLUME_CLAIMS else names.SELECTOR]
            for scope in namespaces or (None,)
        ]

    def is_going(self, namespace: str, claim: str) -> bool:
        """Whether the claim is being deleted: it is there for as long as a pod uses it."""
        return bool((self._copies[VOLUME_CLAIMS].get(namespace, claim) or {}).get("going"))

    async def run(self) -> None:
        """Never ends by itself."""
        await run_all(self._reflectors)

"""The intake of RLJobs: what kopf sees of them is kept, and the keys of those to reconcile are enqueued. Nothing else.

What kopf does not tell is found by a list now and then: jobs that went while its watch was cut, or that it is deaf.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence

from rljob_operator.kube.apiserver.access import Access
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import ApiError, Forbidden, NotFound
from rljob_operator.kube.apiserver.resources import RLJOBS, Object
from rljob_operator.kube.watch.kopf_watch import KopfWatch
from rljob_operator.kube.watch.pods import JobKey

log = logging.getLogger(__name__)

SWEEP_SECONDS = 60.0
UNSYNCED_SWEEP_SECONDS = 0.5
NO_DEFINITION_SECONDS = 2.0

Jobs = dict[JobKey, Object]


class Intake:
    """All RLJobs of the given namespaces (None: of all), as the API server last told them. ``enqueue`` gets (namespace, name)."""

    def __init__(
        self, access: Access, client: Client, namespaces: Sequence[str] | None, enqueue: Callable[[str, str], None]
    ) -> None:
        self._client, self._enqueue = client, enqueue
        self._scopes: Sequence[str | None] = [None] if namespaces is None else namespaces
        self._watch = KopfWatch(access, namespaces, self.change)
        self._jobs: Jobs = {}
        self._late: set[tuple[JobKey, str]] = set()
        self.unread: dict[str | None, str] = {}
        """Namespaces whose jobs may not be read, as where one or a RoleBinding in it was deleted, and why; the others go on. What
        is known of their jobs stays."""
        self.synced = asyncio.Event()
        """Set once all jobs are known that a list has shown."""

    def get(self, namespace: str, name: str) -> Object | None:
        """The job as it is known, without its managed fields; it must not be changed. None where there is none."""
        return self._jobs.get((namespace, name))

    def known(self) -> tuple[JobKey, ...]:
        """(namespace, name) of every job."""
        return tuple(self._jobs)

    def documents(self) -> tuple[Object, ...]:
        """Every job as it is known; none of them may be changed. From any thread."""
        return tuple(self._jobs.values())

    def __len__(self) -> int:
        return len(self._jobs)

    async def run(self, sweep_seconds: float = SWEEP_SECONDS) -> None:
        """Never ends by itself. Waits for the definition of RLJobs where it is not there yet."""
        while (listed := await self._list()) is None:
            await asyncio.sleep(NO_DEFINITION_SECONDS)
        self._watch.start()
        try:
            while True:
                self._watch.check()
                if listed is not None:
                    self.compare(*listed)
                await asyncio.sleep(
                    sweep_seconds * random.uniform(0.8, 1.0) if self.synced.is_set() else UNSYNCED_SWEEP_SECONDS
                )
                listed = await self._list()
        finally:
            await self._watch.stop()

    async def _list(self) -> tuple[Jobs, Jobs] | None:
        """What is known, and then what the API server says there is, in all namespaces that may be read; None where it can't be
        asked, or of none."""
        known, found, unread = dict(self._jobs), dict[JobKey, Object](), dict[str | None, str]()
        for namespace in self._scopes:
            try:
                for job in (await self._client.list(RLJOBS, namespace, metadata_only=True)).items:
                    found[job["metadata"]["namespace"], job["metadata"]["name"]] = job
            except ApiError as problem:
                unread[namespace] = str(problem)
                if self.unread.get(namespace) != str(problem):
                    log.warning("RLJobs in %s can't be listed: %s", namespace or "all namespaces", problem)
                if not isinstance(problem, Forbidden | NotFound):
                    return None
        before, self.unread = self.unread, unread
        readable = [each for each in self._scopes if each not in unread]
        if readable and unread.keys() != before.keys() and readable != [None]:
            self._watch.namespaces = [each for each in readable if each is not None]
            self._watch.start_anew()
        return ({key: job for key, job in known.items() if key[0] not in unread}, found) if readable else None

    def compare(self, known: Jobs, found: Jobs) -> None:
        """Forget what was known before a list and is not in it; and begin the watch anew where it has not told by the next list
        what one has shown, as where the definition of RLJobs was deleted and made again."""
        for key, job in known.items():
            if key not in found or _uid(found[key]) != _uid(job):
                self.change("DELETED", job)
        late = _versions(found) - _versions(self._jobs)
        if late & self._late and self.synced.is_set():
            log.warning("the watch of RLJobs is deaf, it begins anew: %d changes were not told", len(late & self._late))
            self._watch.start_anew()
        self._late = late
        if found.keys() <= self._jobs.keys():
            self.synced.set()

    def change(self, kind: str | None, job: Object) -> None:
        """One event. A change of nothing but the status is noted, and the job is not reconciled for it."""
        key = job["metadata"]["namespace"], job["metadata"]["name"]
        before = self._jobs.get(key)
        if kind == "DELETED":
            if before is None or _uid(before) != _uid(job):
                return  # another one has the name already
            del self._jobs[key]
        else:
            self._jobs[key] = job
            if before is not None and _wanted(before) == _wanted(job):
                return
        self._enqueue(*key)


def _uid(job: Object) -> str:
    return str(job["metadata"]["uid"])


def _versions(jobs: Jobs) -> set[tuple[JobKey, str]]:
    return {(key, job["metadata"]["resourceVersion"]) for key, job in jobs.items()}


def _wanted(job: Object) -> Object:
    """The job without what its controller writes."""
    return {**job, "status": None, "metadata": {**job["metadata"], "resourceVersion": None}}

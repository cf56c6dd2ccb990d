"""Keeps a copy of all objects of one kind in step with the API server: list, then watch, then watch on, for ever.

After a watch that ended as it should, the next goes on from the last version seen. One that was cut or refused, or whose version
the server no longer knows, begins anew with a list, later each time; a list finds out what was missed, too.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable
from contextlib import aclosing
from typing import Protocol

from rljob_operator.kube.apiserver.client import SILENCE_SECONDS, WATCH_SECONDS, Client
from rljob_operator.kube.apiserver.errors import ApiError, Forbidden, Gone, NotFound, Unavailable
from rljob_operator.kube.apiserver.resources import Object, Resource

log = logging.getLogger(__name__)

FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 10.0
"""An API server that is back is noticed within this."""
REFUSED_SECONDS = 60.0
"""A right that was granted is noticed within this; some operators never get it."""
SHORT_WATCH_SECONDS = 1.0
"""A watch that ends sooner without an event did not end as it should."""


class Copy(Protocol):
    """What is kept in step."""

    def keep(self, document: Object) -> Object:
        """The part of an object that is kept; called for each as soon as it has arrived, so that the rest is freed."""

    def replace(self, namespace: str | None, documents: list[Object]) -> None:
        """These are all objects there are (in the namespace; None: at all)."""

    def change(self, kind: str, document: Object) -> None:
        """One object is ADDED, MODIFIED or DELETED."""


class Reflector:
    """Keeps ``copy`` in step with the objects in ``namespace`` (None: in all) that ``label_selector`` chooses.

    ``steady`` counts seconds and only goes forward.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        copy: Copy,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        watch_seconds: float = WATCH_SECONDS,
        silence_seconds: float = SILENCE_SECONDS,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._resource, self._copy = client, resource, copy
        self.namespace, self._selector = namespace, label_selector
        self._watch_seconds, self._silence_seconds = watch_seconds, silence_seconds
        self._steady = steady
        self._heard = steady()
        self._failures = 0
        self.refused: ApiError | None = None
        """Why the objects may not be read; None where they may, or there was no answer."""
        self.synced = asyncio.Event()
        """Set once the first list is complete; what came later may still be on its way."""

    @property
    def age_seconds(self) -> float:
        """Since the API server was last heard: by a list, an event or a bookmark."""
        return self._steady() - self._heard

    async def run(self) -> None:
        """Never ends by itself; what `Copy` raises ends it, since an incomplete copy is of no use."""
        while True:
            try:
                version = await self._list()
                while True:
                    version = await self._watch(version)
            except ApiError as problem:
                delay = self._delay_seconds(problem)
                where = self.namespace or "all namespaces"
                level = logging.INFO if isinstance(problem, Gone) else logging.WARNING
                if str(problem) != str(self.refused):  # while it is refused it is told once
                    log.log(level, "%s in %s: %s; listed anew in %.1f s", self._resource.plural, where, problem, delay)
                self.refused = problem if isinstance(problem, Forbidden | NotFound) else None
            await asyncio.sleep(delay)

    async def _list(self) -> str:
        found: list[Object] = []
        version = ""
        pages = self._client.pages(self._resource, self.namespace, label_selector=self._selector)
        async with aclosing(pages):
            async for page in pages:
                self._heard = self._steady()
                found += map(self._copy.keep, page.items)
                version = page.resource_version
        self._copy.replace(self.namespace, found)
        self.synced.set()
        self.refused = None
        return version

    async def _watch(self, version: str) -> str:
        """Follow what happens after ``version``; from where to go on, once the watch has ended as it should."""
        began, heard_of = self._steady(), 0
        events = self._client.watch(
            self._resource,
            self.namespace,
            resource_version=version,
            label_selector=self._selector,
            timeout_seconds=self._watch_seconds * random.uniform(0.8, 1.0),  # not all at the same time
            silence_seconds=self._silence_seconds,
        )
        async with aclosing(events):
            async for event in events:
                self._heard = self._steady()
                heard_of += 1
                self._failures = 0
                version = event.resource_version
                if event.kind != "BOOKMARK":
                    self._copy.change(event.kind, self._copy.keep(event.document))
        self._heard = self._steady()
        if not heard_of and self._heard - began < SHORT_WATCH_SECONDS:
            raise Unavailable("the watch ended as soon as it had begun")
        self._failures = 0
        return version

    @property
    def done(self) -> bool:
        """Whether all objects that may be read have been listed."""
        return self.synced.is_set() or self.refused is not None

    def _delay_seconds(self, problem: ApiError) -> float:
        longest = REFUSED_SECONDS if isinstance(problem, Forbidden) else LONGEST_DELAY_SECONDS
        delay = min(FIRST_DELAY_SECONDS * 2.0 ** min(self._failures, 10), longest)
        self._failures += 1
        return float(max(delay * random.uniform(0.8, 1.2), problem.retry_after_seconds or 0.0))


async def run_all(reflectors: Iterable[Reflector]) -> None:
    """Run several; never ends by itself."""
    async with asyncio.TaskGroup() as group:
        for each in reflectors:
            group.create_task(each.run())

"""kopf, made to watch RLJobs and to do nothing else: the whole of our dealings with it, so that it could be replaced.

It has one handler, for raw events; there is no peering, nothing is posted, no finalizer is set and nothing is written. It runs on
a thread and a loop of its own because it cancels every task of its loop when it ends.
"""

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import kopf
from rljob.threads import SupervisedThread

from rljob_operator.kube.apiserver.access import Access
from rljob_operator.kube.apiserver.resources import RLJOBS, Object, without_managed_fields

log = logging.getLogger(__name__)

RESTART_SECONDS = 2.0
IDLE_SECONDS = 0.2
"""kopf keeps the last event of an object, 60 KB as mappings, until nothing has come for so long: its own 5 s would be most of the
memory of a minute in which a thousand jobs change."""
STOP_SECONDS = 15.0
SILENCE_SECONDS = 70.0
"""A watch without an event or a bookmark for so long is begun again from where it was: it may be dead."""


class KopfWatch:
    """Watches the RLJobs of the given namespaces (None: of all) from ``start`` to ``stop``, both called on one loop.

    ``on_event`` is called on that loop with ADDED, MODIFIED or DELETED, or None for what a list has shown, and the job as `kept`.
    The definition of RLJobs must be there. When kopf ends, for whatever reason, it is started anew.
    """

    def __init__(
        self, access: Access, namespaces: Sequence[str] | None, on_event: Callable[[str | None, Object], None]
    ) -> None:
        self._access, self._on_event = access, on_event
        self.namespaces = namespaces
        """Those that are watched from the next start on. kopf ends where it may not read one of them."""
        self._stop = threading.Event()
        self._end: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._thread = SupervisedThread("intake", self._keep_running, until=self._stop)
        self._loop: asyncio.AbstractEventLoop

    def start(self) -> None:
        """Begin."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def check(self) -> None:
        """Raises ``ThreadEnded`` where a defect has ended the watching."""
        self._thread.check()

    def start_anew(self) -> None:
        """End kopf, so that it begins again with a list."""
        if self._end is not None and not self._end[0].is_closed():
            self._end[0].call_soon_threadsafe(self._end[1].set)

    async def stop(self) -> None:
        """End the watching."""
        self._stop.set()
        self.start_anew()
        until = self._loop.time() + STOP_SECONDS
        while self._thread.alive and self._loop.time() < until:
            await asyncio.sleep(0.02)
        self._thread.close(timeout_seconds=0.1)

    def _keep_running(self) -> None:
        while not self._stop.is_set():
            try:
                asyncio.run(self._run())
            except Exception as problem:  # noqa: BLE001  whatever ends kopf, jobs must be watched
                log.warning("kopf has ended: %s: %s", type(problem).__name__, problem)
            self._stop.wait(RESTART_SECONDS)

    async def _run(self) -> None:
        registry, end = kopf.OperatorRegistry(), asyncio.Event()

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.ConnectionInfo:
            await self._access.renew()
            said = self._access.configuration
            return kopf.ConnectionInfo(
                server=said.host, ca_path=said.ssl_ca_cert, insecure=not said.verify_ssl, proxy_url=said.proxy,
                token=await self._access.token(), certificate_path=said.cert_file, private_key_path=said.key_file,
            )  # fmt: skip

        @kopf.on.event(RLJOBS.group, RLJOBS.version, RLJOBS.plural, registry=registry)
        async def event(event: Any, **_: Any) -> None:
            self._loop.call_soon_threadsafe(self._on_event, event["type"], kept(event["object"]))

        self._end = asyncio.get_running_loop(), end
        scope: dict[str, Any] = {"clusterwide": True} if self.namespaces is None else {"namespaces": self.namespaces}
        if not self._stop.is_set():
            await kopf.operator(registry=registry, settings=_settings(), standalone=True, stop_flag=end, **scope)


def kept(job: Object) -> Object:
    """A job whose managed fields are those of its scale subresource, with its status as the text of its JSON: it is read once,
    and would take 35 KB of memory as mappings, a third of all that is kept of a job."""
    found = without_managed_fields(job) | ({"status": json.dumps(job["status"])} if "status" in job else {})
    if scalers := [each for each in job["metadata"].get("managedFields") or () if each.get("subresource") == "scale"]:
        found["metadata"]["managedFields"] = scalers
    return found


class _NothingCompared(kopf.DiffBaseStorage):
    """kopf copies each object twice to find out what has changed in it, which is not needed here and takes several ms."""

    def build(self, **_: Any) -> Any:
        """The part of an object that is compared."""
        return {}

    def fetch(self, **_: Any) -> None:
        """The same as it was before."""

    def store(self, **_: Any) -> None:
        """Nothing is written."""


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.persistence.diffbase_storage = _NothingCompared()
    settings.queueing.idle_timeout = IDLE_SECONDS
    settings.posting.enabled = False
    settings.scanning.disabled = True  # else the operator would need the right to watch definitions and namespaces
    settings.process.ultimate_exiting_timeout = None
    settings.networking.request_timeout = 30.0
    settings.networking.error_backoffs = (0.5, 1.0, 2.0, 4.0)
    settings.networking.enforce_retry_after = True
    settings.watching.server_timeout = 240
    settings.watching.inactivity_timeout = SILENCE_SECONDS
    settings.queueing.error_delays = (1.0, 2.0, 4.0, 8.0)
    return settings

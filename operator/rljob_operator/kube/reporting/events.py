"""Events that `kubectl describe` and `kubectl events` show: recorded at once, sent when there is time, never in the way.

What happens again is no new event but makes a series of the first (events.k8s.io/v1), which is brought up to date now and then.
An object that would say too much has its further events dropped and counted.
"""

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import (
    AlreadyExists,
    ApiError,
    NotFound,
    NotLeader,
    TooManyRequests,
    Unavailable,
)
from rljob_operator.kube.apiserver.resources import EVENTS, Object, Resource

log = logging.getLogger(__name__)

CONTROLLER = "rljob.dev/operator"
LONGEST_NOTE = 1024
LONGEST_REASON = 128
MOST_WAITING = 1000
MOST_SERIES = 5000
SERIES_EVERY_SECONDS = 30.0
SERIES_ENDS_SECONDS = 360.0
"""A series to which nothing was added for so long begins anew."""
MOST_OF_ONE = 25
"""An object may have so many series that have not ended."""
SEND_TIMEOUT_SECONDS = 10.0
PAUSE_SECONDS = 2.0
"""Before the next try where the API server has no time."""


def reference(resource: Resource, document: Object) -> Object:
    """How an event names an object."""
    about = document["metadata"]
    named = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": about["name"],
        "namespace": about["namespace"],
        "uid": about["uid"],
        "resourceVersion": about.get("resourceVersion"),
    }
    return {name: value for name, value in named.items() if value is not None}


@dataclass(slots=True)
class _Series:
    """One event of an object, once or again and again."""

    document: Object
    last_said: float
    last_said_at: str
    count: int = 1
    sent_count: int = 0
    sent: float = 0.0
    waiting: bool = True


class EventRecorder:
    """Records events of one event loop; `run` sends them.

    ``instance`` names this process. ``now`` counts seconds and only goes forward. ``counted`` is told ``sent`` of every call that
    has stored an event or brought one up to date, and ``dropped`` of every event that is not stored: too many, or not taken.
    """

    def __init__(
        self,
        client: Client,
        instance: str,
        now: Callable[[], float] = time.monotonic,
        counted: Callable[[str], None] = lambda outcome: None,
    ) -> None:
        self._client, self._instance, self._now = client, instance[:128], now
        self._series: dict[tuple[str, ...], _Series] = {}
        self._waiting: deque[tuple[str, ...]] = deque()
        self._more = asyncio.Event()
        self._counted = counted

    def record(self, regarding: Object, kind: str, reason: str, note: str, *, action: str) -> None:
        """Record an event about an object; never waits and never raises.

        Args:
            regarding: the `reference` to the object.
            kind: ``Normal`` or ``Warning``.
            reason: why, as one word for programs.
            note: the same for people.
            action: what was done or tried, as one word.
        """
        try:
            self._record(regarding, kind, reason, note, action)
        except Exception:  # an event that can't be recorded must not make its caller fail
            self._counted("dropped")
            log.exception("an event could not be recorded")

    async def run(self) -> None:
        """Send what is recorded; never ends by itself."""
        tidied = self._now()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(SERIES_EVERY_SECONDS / 2):
                    await self._more.wait()
            if self._now() - tidied >= SERIES_EVERY_SECONDS / 2:  # also where there is always something to say
                self.tidy()
                tidied = self._now()
            await self.flush()

    async def flush(self) -> None:
        """Send what waits now, however long the API server takes for it."""
        while self._waiting:
            series = self._series.get(self._waiting[0])
            pause = await self._send(series) if series is not None else 0.0
            if pause:
                await asyncio.sleep(pause)
                continue
            self._waiting.popleft()
            if series is not None:
                series.waiting = False
        self._more.clear()

    def tidy(self) -> None:
        """Bring series up to date that went on since they were sent, and forget those that have ended."""
        now = self._now()
        for key, series in list(self._series.items()):
            ended = now - series.last_said > SERIES_ENDS_SECONDS
            if series.count > series.sent_count and (ended or now - series.sent >= SERIES_EVERY_SECONDS):
                self._enqueue(key, series)
            elif ended and not series.waiting:
                del self._series[key]

    def _record(self, regarding: Object, kind: str, reason: str, note: str, action: str) -> None:
        key = (regarding["uid"], kind, reason, action, note)
        now, stamp = self._now(), _stamp()
        known = self._series.get(key)
        if known is not None and now - known.last_said <= SERIES_ENDS_SECONDS:
            known.count += 1
            known.last_said, known.last_said_at = now, stamp
            if now - known.sent >= SERIES_EVERY_SECONDS:
                self._enqueue(key, known)
            return
        if (
            len(self._series) >= MOST_SERIES
            or len(self._waiting) >= MOST_WAITING
            or sum(each[0] == regarding["uid"] for each in self._series) >= MOST_OF_ONE
        ):
            self._counted("dropped")
            return
        document: Object = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {
                "name": f"{regarding['name'][:200]}.{secrets.token_hex(8)}",
                "namespace": regarding["namespace"],
            },
            "eventTime": stamp,
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            "action": action[:LONGEST_REASON],
            "reason": reason[:LONGEST_REASON],
            "regarding": regarding,
            "note": _bounded(note),
            "type": kind,
        }
        series = self._series[key] = _Series(document, now, stamp, waiting=False)
        self._enqueue(key, series)

    def _enqueue(self, key: tuple[str, ...], series: _Series) -> None:
        if not series.waiting:
            series.waiting = True
            self._waiting.append(key)
            self._more.set()

    async def _send(self, series: _Series) -> float:
        """Store the event or bring it up to date; in how many seconds to try again, 0 where there is nothing more to do."""
        now, count = self._now(), series.count
        try:
            await self._send_once(series)
            self._counted("sent")
        except NotLeader:
            return PAUSE_SECONDS  # the elector judges whether the lead is lost
        except (TooManyRequests, Unavailable) as problem:
            if now - series.last_said <= SERIES_ENDS_SECONDS:
                return min(problem.retry_after_seconds or PAUSE_SECONDS, SERIES_EVERY_SECONDS)
            self._counted("dropped")
        except ApiError as problem:
            self._counted("dropped")
            log.info("an event was not taken: %s", problem)
        series.sent_count, series.sent = count, now
        return 0.0

    async def _send_once(self, series: _Series) -> None:
        about = series.document["metadata"]
        if series.sent_count:
            try:
                await self._client.patch(
                    EVENTS, about["namespace"], about["name"], {"series": _series_of(series)},
                    timeout_seconds=SEND_TIMEOUT_SECONDS,
                )  # fmt: skip
            except NotFound:  # events are kept for an hour
                series.sent_count = 0
            else:
                return
        document = {**series.document, **({"series": _series_of(series)} if series.count > 1 else {})}
        with suppress(AlreadyExists):  # an earlier try has arrived after all
            await self._client.create(EVENTS, document, timeout_seconds=SEND_TIMEOUT_SECONDS)


def _series_of(series: _Series) -> Object:
    return {"count": series.count, "lastObservedTime": series.last_said_at}


def _bounded(note: str) -> str:
    """The API server counts bytes."""
    encoded = note.encode()
    return note if len(encoded) <= LONGEST_NOTE else encoded[: LONGEST_NOTE - 3].decode(errors="ignore") + "..."


def _stamp() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")

"""Events that `kubectl describe` and `kubectl events` show: recorded at once, sent when there is time, never in the way.

What is said again within six minutes is not sent again. An object that would say too much has its further events dropped and
counted.
"""

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import AlreadyExists, ApiError, NotLeader, TooManyRequests, Unavailable
from rljob_operator.kube.apiserver.resources import EVENTS, Object, Resource

log = logging.getLogger(__name__)

CONTROLLER = "rljob.dev/operator"
LONGEST_NOTE = 1024
LONGEST_REASON = 128
MOST_WAITING = 1000
MOST_KNOWN = 5000
AGAIN_SECONDS = 360.0
"""What was said so long ago is said again; what could not be sent for so long is dropped."""
MOST_OF_ONE = 25
"""An object may say so many different things in that time."""
SEND_TIMEOUT_SECONDS = 10.0
PAUSE_SECONDS = 2.0
"""Before the next try where the API server has no time."""
LONGEST_PAUSE_SECONDS = 30.0


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


class EventRecorder:
    """Records events of one event loop; `run` sends them.

    ``instance`` names this process. ``now`` counts seconds and only goes forward. ``counted`` is told ``sent`` of each event that
    was stored, and ``dropped`` of each one that is not: too many, or not taken.
    """

    def __init__(
        self,
        client: Client,
        instance: str,
        now: Callable[[], float] = time.monotonic,
        counted: Callable[[str], None] = lambda outcome: None,
    ) -> None:
        self._client, self._instance, self._now, self._counted = client, instance[:128], now, counted
        self._said: dict[tuple[str, ...], float] = {}
        self._waiting: deque[tuple[Object, float]] = deque()
        self._more = asyncio.Event()

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
        while True:
            await self._more.wait()
            await self.flush()

    async def flush(self) -> None:
        """Send what waits now, however long the API server takes for it."""
        while self._waiting:
            if pause := await self._send(*self._waiting[0]):
                await asyncio.sleep(pause)
            else:
                self._waiting.popleft()
        self._more.clear()

    def _record(self, regarding: Object, kind: str, reason: str, note: str, action: str) -> None:
        key, now = (regarding["uid"], kind, reason, action, note), self._now()
        self._said = {each: at for each, at in self._said.items() if now - at <= AGAIN_SECONDS}
        if key in self._said:
            return
        of_it = sum(each[0] == regarding["uid"] for each in self._said)
        if of_it >= MOST_OF_ONE or len(self._said) >= MOST_KNOWN or len(self._waiting) >= MOST_WAITING:
            self._counted("dropped")
            return
        document: Object = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {
                "name": f"{regarding['name'][:200]}.{secrets.token_hex(8)}",
                "namespace": regarding["namespace"],
            },
            "eventTime": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            "action": action[:LONGEST_REASON],
            "reason": reason[:LONGEST_REASON],
            "regarding": regarding,
            "note": _bounded(note),
            "type": kind,
        }
        self._said[key] = now
        self._waiting.append((document, now))
        self._more.set()

    async def _send(self, document: Object, said: float) -> float:
        """Store an event that was recorded then; in how many seconds to try again, 0 where there is nothing more to do."""
        try:
            with suppress(AlreadyExists):  # an earlier try has arrived after all
                await self._client.create(EVENTS, document, timeout_seconds=SEND_TIMEOUT_SECONDS)
            self._counted("sent")
        except NotLeader:
            return PAUSE_SECONDS  # the elector judges whether the lead is lost
        except (TooManyRequests, Unavailable) as problem:
            if self._now() - said <= AGAIN_SECONDS:
                return min(problem.retry_after_seconds or PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
            self._counted("dropped")
        except ApiError as problem:
            self._counted("dropped")
            log.info("an event was not taken: %s", problem)
        return 0.0


def _bounded(note: str) -> str:
    """The API server counts bytes."""
    encoded = note.encode()
    return note if len(encoded) <= LONGEST_NOTE else encoded[: LONGEST_NOTE - 3].decode(errors="ignore") + "..."

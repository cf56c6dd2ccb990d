"""The work queue: keys to reconcile, each at most once, some of them later; tenants take turns, a tenant's keys come in order.

As client-go's: a key that is added while a worker has it is not given to a second worker; it queues up again, at the end, when
the first is done. So a key that is always busy waits as long as any other of its tenant. The next key is of the tenant that has
had the least time of the workers. One that had nothing to do begins where the one that was last served stands: it has no arrears.
"""

import asyncio
import heapq
import random
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 60.0
JITTER = 0.2
"""A back-off is longer by up to this part of itself, so that keys which failed at once do not come back at once."""


class QueueClosed(Exception):
    """Nothing is given out any more."""


class WorkQueue(Generic[Key]):
    """For the workers and sources of one event loop.

    ``now`` counts seconds and only goes forward; ``jitter`` draws from [0, 1); ``tenant``: whose a key is.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        tenant: Callable[[Key], Hashable] = lambda key: None,
    ) -> None:
        self._now, self._jitter, self._tenant = now, jitter, tenant
        self._ready: dict[Hashable, deque[tuple[Key, float]]] = {}  # by tenant, with the moment it was added
        self._served: dict[Hashable, float] = {}  # seconds of workers, by tenant
        self._served_least = 0.0
        self._dirty: dict[
            Key, float
        ] = {}  # to reconcile since then: what is ready, and what came while it was worked on
        self._processing: dict[Key, float] = {}  # since when
        self._later: dict[Key, float] = {}  # due at; its heap may have older entries, which no longer count
        self._heap: list[tuple[float, int, Key]] = []
        self._entries = 0
        self._failures: dict[Key, int] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def add(self, key: Key) -> None:
        """Have the key reconciled, after those that wait already."""
        self._later.pop(key, None)
        self._want(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """Have the key looked at in ``seconds``; where it is due earlier anyway, that stays."""
        if seconds <= 0.0:
            self.add(key)
            return
        due = self._now() + seconds
        if key in self._dirty or due >= self._later.get(key, float("inf")):
            return
        self._later[key] = due
        self._entries += 1
        heapq.heappush(self._heap, (due, self._entries, key))
        self._set_timer()

    def retry(self, key: Key, at_least_seconds: float = 0.0, at_most_seconds: float = LONGEST_DELAY_SECONDS) -> float:
        """Have a key that failed looked at again, later each time it fails; in how many seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(FIRST_DELAY_SECONDS * 2.0 ** min(failures, 30), LONGEST_DELAY_SECONDS)
        delay = min(delay, at_most_seconds) * (1.0 + JITTER * self._jitter())
        delay = min(delay, LONGEST_DELAY_SECONDS)
        delay = max(delay, at_least_seconds)
        self.add_after(key, delay)
        return delay

    def forget(self, key: Key) -> None:
        """The key has succeeded: its next failure counts as the first."""
        self._failures.pop(key, None)

    async def get(self) -> Key:
        """The next key; ``done`` must be called when it has been worked on. Raises `QueueClosed` after ``close``."""
        while True:
            if self._closed:
                raise QueueClosed
            self._promote()
            if self._ready:
                return self._take()
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._wake()  # it was this one's turn: let it be another's
                raise
            finally:
                if turn in self._waiting:
                    self._waiting.remove(turn)

    def done(self, key: Key) -> None:
        """The worker that got the key has finished with it, for better or worse."""
        began = self._processing.pop(key, self._now())
        self._served[self._tenant(key)] += self._now() - began
        if key in self._dirty:
            self._queue_up(key)

    def close(self) -> None:
        """Give out nothing more: callers that wait, and later ones, get `QueueClosed`."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        while self._waiting:
            self._wake()

    @property
    def depth(self) -> int:
        """Keys that wait for a worker."""
        self._promote()
        return sum(map(len, self._ready.values()))

    @property
    def delayed(self) -> int:
        """Keys whose time has not come."""
        return len(self._later)

    @property
    def failing(self) -> int:
        """Keys whose last reconciliation failed."""
        return len(self._failures)

    @property
    def age_seconds(self) -> float:
        """How long the key that has waited longest for a worker has; 0 where none does."""
        self._promote()
        return self._now() - min((waiting[0][1] for waiting in self._ready.values()), default=self._now())

    def _want(self, key: Key) -> None:
        if self._closed or key in self._dirty:
            return
        self._dirty[key] = self._now()
        if key not in self._processing:
            self._queue_up(key)

    def _queue_up(self, key: Key) -> None:
        tenant = self._tenant(key)
        if tenant not in self._ready:
            self._ready[tenant] = deque()
            self._served[tenant] = max(self._served.get(tenant, 0.0), self._served_least)
        self._ready[tenant].append((key, self._dirty[key]))
        self._wake()

    def _take(self) -> Key:
        tenant = min(self._ready, key=self._served.__getitem__)
        self._served_least = self._served[tenant]
        key, _ = self._ready[tenant].popleft()
        if not self._ready[tenant]:
            del self._ready[tenant]
        del self._dirty[key]
        self._processing[key] = self._now()
        return key

    def _promote(self) -> None:
        """Let in what has become due."""
        now = self._now()
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._later.get(key) == due:
                del self._later[key]
                self._want(key)

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _set_timer(self) -> None:
        """Wake up when the first of the later ones is due."""
        while self._heap and self._later.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, self._heap[0][0] - self._now()), self._due)

    def _due(self) -> None:
        self._timer = None
        self._promote()
        self._set_timer()

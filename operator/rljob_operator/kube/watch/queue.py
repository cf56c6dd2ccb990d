"""The work queue: keys to reconcile, each at most once, some of them later; tenants take turns, a tenant's keys come in order.

As client-go's: a key that is added while a worker has it is not given to a second worker; it queues up again, at the end, when
the first is done. So a key that is always busy waits as long as any other of its tenant. The next key is of the tenant that has
had the least time of the workers. One that had nothing to do begins where the one that was last served stands: it has no arrears.
"""

import asyncio
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

    ``now`` counts seconds as the loop does; ``jitter`` draws from [0, 1); ``tenant``: whose a key is.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        tenant: Callable[[Key], Hashable] = lambda key: None,
    ) -> None:
        self._now, self._jitter, self._tenant = now, jitter, tenant
        self._ready: dict[Hashable, deque[tuple[Key, float]]] = {}  # by tenant, with the moment it was added
        self._turns = asyncio.Semaphore(0)  # as many as keys are ready
        self._served: dict[Hashable, float] = {}  # seconds of workers, by tenant
        self._served_least = 0.0
        self._dirty: dict[
            Key, float
        ] = {}  # to reconcile since then: what is ready, and what came while it was worked on
        self._processing: dict[Key, float] = {}  # since when
        self._later: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self._closed = False

    def add(self, key: Key) -> None:
        """Have the key reconciled, after those that wait already."""
        self._put_off(key, None)
        if self._closed or key in self._dirty:
            return
        self._dirty[key] = self._now()
        if key not in self._processing:
            self._queue_up(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """Have the key looked at in ``seconds``; where it is due earlier anyway, that stays."""
        if seconds <= 0.0:
            self.add(key)
            return
        due, earlier = self._now() + seconds, self._later.get(key)
        if not (self._closed or key in self._dirty or (earlier is not None and earlier.when() <= due)):
            self._put_off(key, asyncio.get_running_loop().call_at(due, self.add, key))

    def retry(self, key: Key, at_least_seconds: float = 0.0, at_most_seconds: float = LONGEST_DELAY_SECONDS) -> float:
        """Have a key that failed looked at again, later each time it fails; in how many seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(FIRST_DELAY_SECONDS * 2.0 ** min(failures, 30), at_most_seconds) * (1.0 + JITTER * self._jitter())
        delay = max(min(delay, LONGEST_DELAY_SECONDS), at_least_seconds)
        self.add_after(key, delay)
        return delay

    def forget(self, key: Key) -> None:
        """The key has succeeded: its next failure counts as the first."""
        self._failures.pop(key, None)

    async def get(self) -> Key:
        """The next key; ``done`` must be called when it has been worked on. Raises `QueueClosed` after ``close``."""
        await self._turns.acquire()
        if self._closed:
            self._turns.release()  # for the next one that waits
            raise QueueClosed
        tenant = min(self._ready, key=self._served.__getitem__)
        self._served_least = self._served[tenant]
        key, _ = self._ready[tenant].popleft()
        if not self._ready[tenant]:
            del self._ready[tenant]
        del self._dirty[key]
        self._processing[key] = self._now()
        return key

    def done(self, key: Key) -> None:
        """The worker that got the key has finished with it, for better or worse."""
        began = self._processing.pop(key, self._now())
        self._served[self._tenant(key)] += self._now() - began
        if key in self._dirty:
            self._queue_up(key)

    def close(self) -> None:
        """Give out nothing more: callers that wait, and later ones, get `QueueClosed`."""
        self._closed = True
        for key in list(self._later):
            self._put_off(key, None)
        self._turns.release()

    @property
    def depth(self) -> int:
        """Keys that wait for a worker."""
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
        return self._now() - min((waiting[0][1] for waiting in self._ready.values()), default=self._now())

    def _put_off(self, key: Key, timer: asyncio.TimerHandle | None) -> None:
        """The key is added when ``timer`` says, and no longer by an earlier one."""
        if (before := self._later.pop(key, None)) is not None:
            before.cancel()
        if timer is not None:
            self._later[key] = timer

    def _queue_up(self, key: Key) -> None:
        tenant = self._tenant(key)
        if tenant not in self._ready:
            self._ready[tenant] = deque()
            self._served[tenant] = max(self._served.get(tenant, 0.0), self._served_least)
        self._ready[tenant].append((key, self._dirty[key]))
        self._turns.release()

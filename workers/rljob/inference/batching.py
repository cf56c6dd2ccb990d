"""When the server evaluates, and how many observations together: pure bookkeeping, no sockets and no clock of its own."""

from collections import deque
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rljob.observation import rows_of

SMALLEST_BUCKET = 4
"""Libraries multiply one or two rows with other kernels, which round differently: from four rows on, an observation's
result does not depend on the batch that it came in."""

ACTIVE_SECONDS = 1.0
"""An actor that has not asked for so long is not waited for."""


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """Observations ``[n, S, *F*]`` (or a dict of such) of one group of one actor's environments, the memory ``state``
    ``[n, 2, H]`` before them, and when they arrived (seconds)."""

    actor: str
    incarnation: str
    group: int
    number: int
    observation: Any
    state: NDArray[np.float32]
    arrived: float

    @property
    def rows(self) -> int:
        """Observations in it."""
        return rows_of(self.observation)


def bucket_sizes(max_batch: int) -> tuple[int, ...]:
    """The batch sizes that are computed: powers of two from 4 on below ``max_batch``, and ``max_batch`` itself.

    A batch is padded to the next of them, so that there are a handful of static shapes. A ``max_batch`` below 4 still
    computes 4 rows.
    """
    if max_batch < 1:
        raise ValueError(f"a batch of {max_batch} observations would never be full; use at least 1")
    sizes = []
    size = SMALLEST_BUCKET
    while size < max_batch:
        sizes.append(size)
        size *= 2
    return (*sizes, max(max_batch, SMALLEST_BUCKET))


MAX_WAIT_SECONDS: Final = 0.002
"""Longest that an observation waits for others: less than a step of most environments takes."""


class Batcher:
    """A queue of requests that says when a batch is due: it is full, its oldest request has waited long enough, or every
    actor that asked lately is waiting already, so that nothing can be gained by waiting for more."""

    def __init__(self, max_batch: int, max_wait_seconds: float) -> None:
        self.max_batch = max_batch
        self.max_wait_seconds = max_wait_seconds
        self.rows = 0
        self._queue: deque[Request] = deque()
        self._asked: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, request: Request) -> None:
        """Queue a request; it may not have more rows than a batch."""
        if request.rows > self.max_batch:
            raise ValueError(f"a request of {request.rows} observations does not fit a batch of {self.max_batch}")
        self._queue.append(request)
        self.rows += request.rows
        # Moved to the end, so that the actors stand in the order in which they last asked.
        self._asked.pop(request.actor, None)
        self._asked[request.actor] = request.arrived

    def due_in(self, now: float) -> float | None:
        """Seconds until a batch must be taken, 0 for at once; None while nothing is queued."""
        if not self._queue:
            return None
        while self._asked and next(iter(self._asked.values())) < now - ACTIVE_SECONDS:
            del self._asked[next(iter(self._asked))]
        if self.rows >= self.max_batch or self._asked.keys() <= {request.actor for request in self._queue}:
            return 0.0
        return max(0.0, self._queue[0].arrived + self.max_wait_seconds - now)

    def take(self) -> list[Request]:
        """The oldest requests that fit one batch together, in order of arrival."""
        taken: list[Request] = []
        rows = 0
        while self._queue and rows + self._queue[0].rows <= self.max_batch:
            request = self._queue.popleft()
            rows += request.rows
            taken.append(request)
        self.rows -= rows
        return taken

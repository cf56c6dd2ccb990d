"""A first-in-first-out table of unrolls: each is taken once, oldest first. It lives inside the learner.

It takes the place of ``ReplayTable`` behind the same ingest, so that actors speak to a learner as they would to a replay shard:
hello, credits, acknowledgements, each unroll accepted exactly once a session.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence

from rljob.experience import Segment, SegmentLayout
from rljob.ingest.table import StoredChunk
from rljob.wire import RawMessage


class QueueLimiter:
    """Lets inserts in as long as a queue has room: ``capacity`` steps, of which ``waiting`` are taken."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.waiting = 0

    def can_insert(self, count: int) -> bool:
        """Whether ``count`` more steps fit now."""
        return self.waiting + count <= self.capacity


class FifoTable:
    """At most ``capacity`` unrolls. Not thread-safe: one thread owns it.

    ``drops_oldest``: a full table makes room for the newest; otherwise its limiter says no before that, and the ingest grants no
    more credits than there is room for. ``dropped`` counts unrolls given up, by reason; with it
    ``accepted = taken + dropped.total() + len(self)`` at all times.
    """

    def __init__(self, layout: SegmentLayout, capacity: int, *, drops_oldest: bool) -> None:
        if capacity < 1:
            raise ValueError(f"queue capacity is {capacity} unrolls, it must be at least 1")
        self.layout = layout
        self.capacity = capacity
        self.drops_oldest = drops_oldest
        # Without blocking, credits only bound what is on the way: as much again as there is room for.
        self.limiter = QueueLimiter(capacity * layout.length * (2 if drops_oldest else 1))
        self.accepted = 0
        self.taken = 0
        self.dropped: Counter[str] = Counter()
        self._unrolls: deque[Segment] = deque()
        self.head = 0
        """Ordinal that the next unroll will get."""

    @property
    def oldest(self) -> int:
        """Ordinal of the oldest unroll; equals ``head`` when there is none."""
        return self.head - len(self._unrolls)

    def __len__(self) -> int:
        return len(self._unrolls)

    @property
    def oldest_version(self) -> int | None:
        """Policy version of the unroll at the head of the queue; None without one."""
        return self._unrolls[0].policy_version if self._unrolls else None

    @property
    def newest(self) -> Segment | None:
        """The unroll that came last, if it still waits."""
        return self._unrolls[-1] if self._unrolls else None

    def chunk(self, ordinal: int) -> StoredChunk:
        """Always empty: chunks are not kept as they arrived, and an ingest without a log never asks."""
        raise KeyError(ordinal)

    def insert(self, arrivals: Sequence[tuple[Segment, RawMessage]]) -> list[StoredChunk]:
        """Append checked unrolls, oldest first. Nothing is ever evicted from a log: the list is empty."""
        for unroll, _ in arrivals:
            self._unrolls.append(unroll)
            self.head += 1
            self.accepted += 1
            if len(self._unrolls) > self.capacity:
                self._unrolls.popleft()
                self.dropped["overflow"] += 1
        self._count()
        return []

    def discard(self, reason: Callable[[Segment], str | None]) -> int:
        """Give up every unroll that ``reason`` names a reason for; returns how many."""
        kept: deque[Segment] = deque()
        for unroll in self._unrolls:
            why = reason(unroll)
            if why is None:
                kept.append(unroll)
            else:
                self.dropped[why] += 1
        gone = len(self._unrolls) - len(kept)
        self._unrolls = kept
        self._count()
        return gone

    def take(self, count: int) -> list[Segment]:
        """The ``count`` oldest unrolls, which leave the table. Raises ``ValueError`` when there are fewer."""
        if count > len(self._unrolls):
            raise ValueError(f"{count} unrolls wanted, {len(self._unrolls)} are there")
        self.taken += count
        unrolls = [self._unrolls.popleft() for _ in range(count)]
        self._count()
        return unrolls

    def _count(self) -> None:
        self.limiter.waiting = len(self._unrolls) * self.layout.length

"""Which unrolls a learner's own queue makes its next batch of, and how old the weights behind one may be.

`FifoTable`: each is taken once, oldest first. It takes the place of ``ReplayTable`` behind the same ingest, so that actors speak
to a learner as they would to a replay shard: hello, credits, acknowledgements, each unroll accepted exactly once a session.

`Iterations`: all have to be of the newest weights. The batch that is learned from with the weights of version k is made of the
first unrolls of version k - lag or newer, of any actors. An actor begins an unroll only once it is asked to, by credits for all
of its environments, and with weights new enough for it. So no actor plays what will be too old; an actor that is slow, or gone,
or lost an unroll with an environment that failed, is not waited for: when an unroll of its takes longer than they usually do, all
are asked in its place, itself too.
"""

import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

from rljob.experience import Segment, SegmentLayout
from rljob.ingest.table import StoredChunk
from rljob.wire import RawMessage


class FifoTable:
    """At most ``capacity`` unrolls. Not thread-safe: one thread owns it.

    ``drops_oldest``: a full table makes room for the newest; else ``can_insert`` says no before that, and the ingest grants no
    more credits than there is room for. ``dropped`` counts unrolls given up, by reason; with it
    ``accepted = taken + dropped.total() + len(self)`` at all times.
    """

    def __init__(self, layout: SegmentLayout, capacity: int, *, drops_oldest: bool) -> None:
        self.layout, self.capacity, self.drops_oldest = layout, capacity, drops_oldest
        self.accepted = self.taken = 0
        self.dropped: Counter[str] = Counter()
        self.unrolls: deque[Segment] = deque()
        self.head = 0
        """Ordinal that the next unroll will get."""

    @property
    def oldest(self) -> int:
        """Ordinal of the oldest unroll; equals ``head`` when there is none."""
        return self.head - len(self.unrolls)

    def __len__(self) -> int:
        return len(self.unrolls)

    def can_insert(self, count: int) -> bool:
        """Whether ``count`` more steps may come now."""
        # Where the oldest are dropped, credits only bound what is on the way: as much again as there is room for.
        room = self.capacity * (2 if self.drops_oldest else 1)
        return len(self.unrolls) * self.layout.length + count <= room * self.layout.length

    def chunk(self, ordinal: int) -> StoredChunk:
        """Always empty: chunks are not kept as they arrived, and an ingest without a log never asks."""
        raise KeyError(ordinal)

    def insert(self, arrivals: Sequence[tuple[Segment, RawMessage]]) -> list[StoredChunk]:
        """Append checked unrolls, oldest first. Nothing is ever evicted from a log: the list is empty."""
        for unroll, _ in arrivals:
            self.unrolls.append(unroll)
            self.head += 1
            self.accepted += 1
            if len(self.unrolls) > self.capacity:
                self.unrolls.popleft()
                self.dropped["overflow"] += 1
        return []

    def discard(self, reason: Callable[[Segment], str | None]) -> None:
        """Give up every unroll that ``reason`` names a reason for."""
        kept: deque[Segment] = deque()
        for unroll in self.unrolls:
            why = reason(unroll)
            if why is None:
                kept.append(unroll)
            else:
                self.dropped[why] += 1
        self.unrolls = kept

    def take(self, count: int) -> list[Segment]:
        """The ``count`` oldest unrolls, which leave the table; there must be so many."""
        self.taken += count
        return [self.unrolls.popleft() for _ in range(count)]


PATIENCE = 1.25
"""How much longer than usual an unroll may take before others are asked for it."""
_REMEMBERED = 32


class Iterations:
    """For one thread. ``version``: of the weights published last, 0 before any. ``waiting``: unrolls in the queue, all of
    which may be learned from, or with the loop, which has said nothing of more."""

    def __init__(
        self,
        lag: int,
        batch_size: int,
        version: Callable[[], int],
        waiting: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lag, self._batch_size = lag, batch_size
        self._version, self._waiting, self._clock = version, waiting, clock
        self._assembled = 0
        self._asked_at: dict[bytes, float] = {}
        self._took: deque[float] = deque(maxlen=_REMEMBERED)
        self._in_part: deque[float] = deque(maxlen=_REMEMBERED)
        """What goes for how long they take until an actor has sent all that it was asked for, which it may never do: how long
        the first ones took."""
        self._asked_for: dict[bytes, int] = {}
        """How many unrolls each peer was asked for that has sent nothing since."""

    @property
    def next(self) -> int:
        """The version with which the next batch will be learned from."""
        return max(self._version(), self._assembled + 1)

    @property
    def least_version(self) -> int:
        """The oldest version that an unroll of the next batch may be of. Before the first weights: whatever comes."""
        return max(1, self.next - self._lag) if self._version() else 0

    def assembled(self) -> None:
        """The next batch is there: what comes from now on is for the one behind it."""
        self._assembled = self.next if self._version() else 0

    def begin_anew(self) -> None:
        """The learner has gone back to earlier weights."""
        self._assembled = 0

    def share(self, wanted: Mapping[bytes, int], outstanding: Mapping[bytes, int], turn: int) -> dict[bytes, int]:
        """Credits by peer, all that is ``wanted`` of one after the other, beginning with peer ``turn``, until a batch was asked
        for. ``outstanding``: unrolls that were asked for and have not come."""
        now = self._clock()
        for peer in [peer for peer in self._asked_at if not outstanding.get(peer)]:
            asked_at = self._asked_at.pop(peer)
            self._asked_for.pop(peer, None)
            if peer in outstanding:
                self._took.append(now - asked_at)
        for peer in [peer for peer, count in self._asked_for.items() if outstanding[peer] < count]:
            del self._asked_for[peer]
            self._in_part.append(now - self._asked_at[peer])
        if self._version() < self.least_version:  # what began now would be too old when it is learned from
            return {}
        known = self._took or self._in_part
        patience = PATIENCE * statistics.median(known) if known else float("inf")
        prompt = (peer for peer, asked_at in self._asked_at.items() if now - asked_at <= patience)
        missing = self._batch_size - self._waiting() - sum(outstanding[peer] for peer in prompt)
        peers = list(wanted)
        grants = {}
        for peer in peers[turn % max(1, len(peers)) :] + peers[: turn % max(1, len(peers))]:
            if missing > 0 and wanted[peer] > 0:
                grants[peer] = wanted[peer]
                self._asked_at[peer] = now
                self._asked_for[peer] = outstanding.get(peer, 0) + wanted[peer]
                missing -= wanted[peer]
        return grants


MOST_UPDATES = 1000
"""An adapting limit goes no higher: older experience teaches little, even where it is scarce."""

NOTABLE_SHARE = 0.1
"""Share of the unrolls given up for their age from which on it is logged."""

_ARRIVALS = 64
_WINDOW_SECONDS = 60.0
_MARK_SECONDS = 5.0
_FEWEST_DECIDED = 64


class LagLimit:
    """A limit on age in updates, and what became of unrolls under it over the last minute. One thread writes.

    ``updates`` covers the way through a full queue. With ``adapts`` the age is added that nine tenths of the unrolls have at most
    when they arrive, since weights take time to reach an actor, and a game its own to be played.
    """

    def __init__(self, updates: int, *, adapts: bool) -> None:
        self._least, self._adapts = updates, adapts
        self._arrived: deque[int] = deque(maxlen=_ARRIVALS)
        self._marks: deque[tuple[float, int, int]] = deque([(0.0, 0, 0)])

    def arrived(self, age_updates: int) -> None:
        """An unroll has come whose weights are so old."""
        self._arrived.append(age_updates)

    @property
    def arrival_age_updates(self) -> int | None:
        """The age that nine tenths of the latest unrolls had at most when they arrived; None before the first."""
        return sorted(self._arrived)[len(self._arrived) * 9 // 10] if self._arrived else None

    @property
    def updates(self) -> int:
        """The limit in force."""
        if not self._adapts:
            return self._least
        return max(self._least, min(MOST_UPDATES, self._least + (self.arrival_age_updates or 0)))

    def count(self, stale: int, kept: int, now: float) -> None:
        """Take over the totals of unrolls that were too old, and of those that were not."""
        if now - self._marks[-1][0] >= _MARK_SECONDS:
            self._marks.append((now, stale, kept))
        while now - self._marks[0][0] > _WINDOW_SECONDS and len(self._marks) > 2:
            self._marks.popleft()

    def in_words(self) -> str:
        """What is given up and what to do about it; empty where it is little."""
        (_, stale, kept), (_, stale_now, kept_now) = self._marks[0], self._marks[-1]
        gone = stale_now - stale
        total = gone + kept_now - kept
        if total < _FEWEST_DECIDED or gone <= NOTABLE_SHARE * total:
            return ""
        way = "a shorter way for weights and unrolls (fewer actors, a smaller unrollQueue.capacity, a faster network)"
        what = way if self._adapts else f"a higher unrollQueue.maxPolicyLagUpdates, or none, or {way}"
        return (
            f"{gone / total:.0%} of the last minute's unrolls were too old to be learned from: they arrive up "
            f"to {self.arrival_age_updates} updates old, and {self.updates} are allowed; what helps is {what}"
        )

"""A replay table: stored chunks in order of arrival, where they lie, what may be sampled and how often."""

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rljob.experience import Segment, SegmentLayout, Slots
from rljob.ingest.table import StoredChunk
from rljob.observation import Array
from rljob.replay.limiter import SamplesPerInsertLimiter
from rljob.replay.selectors import Prioritized
from rljob.wire import DRAWN, RawMessage

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Capacity:
    """Limits of a table, both enforced; ``nbytes`` counts compressed chunks, 0 = no limit."""

    steps: int
    nbytes: int = 0

    def chunks(self, layout: SegmentLayout) -> int:
        """Chunk slots to reserve: an eighth more than full chunks need, because some chunks close early."""
        full = -(-self.steps // layout.length)
        return full + full // 8 + 8


class ReplayTable:
    """Slots, selector and limiter as one table, with first-in-first-out eviction of whole chunks.

    Not thread-safe: one thread owns the table. The oldest chunks are evicted before an insert would pass a limit of
    ``capacity``, in steps or in bytes; freed slots are reused before fresh ones, so that memory follows what is stored.
    """

    def __init__(
        self,
        slots: Slots,
        selector: Prioritized,
        limiter: SamplesPerInsertLimiter,
        capacity: Capacity,
        first_generation: int = 1,
    ) -> None:
        self.slots, self.selector, self.limiter, self.capacity = slots, selector, limiter, capacity
        self.next_generation = first_generation
        self.layout = slots.layout
        self.items = self.nbytes = self.stale_priorities = self.invalid_priorities = self._fresh = 0
        self._chunks: dict[int, StoredChunk] = {}
        self.oldest = 0
        """Ordinal of the oldest stored chunk; equals ``head`` when the table is empty."""
        self.head = 0
        """Ordinal that the next chunk will get."""
        self._free: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._chunks)

    @property
    def fill(self) -> float:
        """How full it is, 0 to 1, by the limit that is nearest: of steps, of bytes, or of places for chunks, which those of short
        episodes take up with fewer steps than they have room for."""
        limit = self.capacity.nbytes
        shares = (
            self.items / self.capacity.steps,
            len(self) / self.slots.capacity,
            self.nbytes / limit if limit else 0.0,
        )
        return min(1.0, max(shares))  # a limit of less than a chunk stores one

    def can_insert(self, count: int) -> bool:
        """Whether ``count`` more transitions may be inserted now."""
        return self.limiter.can_insert(count)

    def chunk(self, ordinal: int) -> StoredChunk:
        """The stored chunk of this ordinal; ``KeyError`` when it was evicted or not yet stored."""
        return self._chunks[ordinal]

    def insert(
        self, arrivals: Sequence[tuple[Segment, RawMessage]], *, restored: Sequence[int] | None = None
    ) -> list[StoredChunk]:
        """Store chunks that satisfy the layout. Returns the evicted chunks, oldest first.

        Only their small columns are read: frames stay as they arrived. ``restored`` gives the chunks the generations they had (a
        warm restart); they were counted by the limiter when they first came.
        """
        evicted: list[StoredChunk] = []
        # What each touched slot ends up with; a slot that is freed and filled again costs one write of the tree.
        touched: dict[int, Array | None] = {}
        for position, (chunk, raw) in enumerate(arrivals):
            nbytes = raw.nbytes
            for old in self._make_room(chunk.steps, nbytes):
                touched[old.slot] = None
                evicted.append(old)
            slot = self._free.popleft() if self._free else self._fresh
            if (
                slot == self._fresh == self.slots.capacity - 1
                and self.layout.stack > 1
                and 2 * self.items < self.capacity.steps
            ):
                log.warning(
                    "the replay is full with %d of %d transitions, since episodes are short and each brings a stack of %d "
                    "frames; environment.frameStack: 1 has room for more",
                    self.items,
                    self.capacity.steps,
                    self.layout.stack,
                )
            self._fresh = max(self._fresh, slot + 1)
            touched.pop(slot, None)
            touched[slot] = chunk["priority"]
            generation = self.next_generation if restored is None else restored[position]
            self.slots.fill(slot, generation, chunk.steps)
            self._chunks[self.head] = StoredChunk(self.head, generation, slot, chunk.steps, nbytes, raw)
            self.head += 1
            self.items += chunk.steps
            self.nbytes += nbytes
            self.next_generation = max(self.next_generation, generation + 1)
            if restored is None:
                self.limiter.insert(chunk.steps)
        self._assign(touched)
        return evicted

    def sample(self, counts: int | Sequence[int], generator: np.random.Generator) -> Array:
        """``DRAWN`` [n] with the probability of each, of several ``counts`` one after the other. The limiter does not count them.

        Raises ``ValueError`` when nothing is stored; whether the limiter allows it is the caller's question.
        """
        ids, probability = self.selector.sample(counts, generator)
        drawn = np.empty(len(ids), DRAWN)
        drawn["slot"], drawn["gen"], drawn["value"] = ids, self.slots.generation[ids // self.layout.length], probability
        return drawn

    def update_priorities(self, drawn: Array) -> None:
        """Apply the new priorities of ``DRAWN``; those of overwritten slots are counted as stale, non-finite ones as invalid."""
        slots, generations, priorities = drawn["slot"], drawn["gen"], drawn["value"]
        current = self.slots.matches(slots, generations)
        finite = np.isfinite(priorities) & (priorities >= 0.0)
        self.stale_priorities += int(np.count_nonzero(~current))
        self.invalid_priorities += int(np.count_nonzero(current & ~finite))
        use = current & finite
        if use.all():
            self.selector.update(slots, priorities)
        elif use.any():
            self.selector.update(slots[use], priorities[use])

    def _make_room(self, steps: int, nbytes: int) -> Iterator[StoredChunk]:
        limit = self.capacity.nbytes
        while self._chunks and (
            self.items + steps > self.capacity.steps
            or (limit and self.nbytes + nbytes > limit)
            or (not self._free and self._fresh == self.slots.capacity)
        ):
            chunk = self._chunks.pop(self.oldest)
            self.oldest += 1
            self.items -= chunk.steps
            self.nbytes -= chunk.nbytes
            self.slots.empty(chunk.slot)
            self._free.append(chunk.slot)
            yield chunk

    def _assign(self, touched: dict[int, Array | None]) -> None:
        if not touched:
            return
        length = self.layout.length
        rows = np.zeros((len(touched), length))
        slots = list(touched)
        for row, priority in zip(rows, touched.values(), strict=True):
            if priority is not None:
                row[: len(priority)] = priority
        # Runs of adjacent slots (the usual case: all of them) become one update each.
        starts = [i for i in range(len(slots)) if i == 0 or slots[i] != slots[i - 1] + 1]
        for start, stop in zip(starts, [*starts[1:], len(slots)], strict=True):
            self.selector.assign(slots[start] * length, rows[start:stop].reshape(-1))

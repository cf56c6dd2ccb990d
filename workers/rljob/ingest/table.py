"""What the ingest needs of the table that it fills, and of the log; what a table has of each chunk; and epsilon slots, which a
log keeps, too: the place of an actor on the exploration ladder, which outlives its process."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rljob.experience import InvalidSegment, Segment, SegmentLayout
from rljob.observation import PICTURES
from rljob.wire import RawMessage

LEASE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Lease:
    """An epsilon slot held by an actor for another ``seconds``; 0 gives it back."""

    slot: int
    actor: str
    incarnation: str
    seconds: float


@dataclass(slots=True)
class _Held:
    actor: str
    incarnation: str
    until: float


def spread(slots: int) -> list[int]:
    """All of ``0..slots-1`` in an order of which every prefix is spread evenly: both ends, then in bit-reversed order."""
    last, bits = slots - 1, (slots - 1).bit_length()
    evenly = (last * int(f"0{place:0{bits}b}"[::-1], 2) >> bits + 1 for place in range(1 << bits))
    return list(dict.fromkeys((0, last, *evenly)))


class SlotLeases:
    """Gives each actor name a slot in ``0..slots-1`` for ``LEASE_SECONDS`` at a time; times are given by the caller.

    An actor that comes back gets the slot it had, even after its lease ran out, as long as no other has taken it. When there
    are more actors than slots, slots are shared evenly rather than refused: exploring twice in the same way beats not exploring.
    Newcomers get slots in the order of `spread`, so that a few actors explore as differently as many do.
    """

    def __init__(self, slots: int) -> None:
        if slots < 1:
            raise ValueError(f"{slots} epsilon slots, there must be at least 1")
        self.slots = slots
        self._held: dict[int, list[_Held]] = {slot: [] for slot in spread(slots)}
        self._last: dict[str, int] = {}
        self.lives = [0] * slots
        """How many lives of actors have taken each slot."""

    def take(self, actor: str, incarnation: str, now: float) -> int:
        """Lease (or renew) a slot for an actor."""
        self.expire(now)
        slot = self._slot_of(actor)
        if not any(held.incarnation == incarnation for held in self._held[slot]):
            self.lives[slot] += 1
        self._held[slot] = [held for held in self._held[slot] if held.actor != actor]
        self._held[slot].append(_Held(actor, incarnation, now + LEASE_SECONDS))
        self._last[actor] = slot
        return slot

    def release(self, actor: str) -> int | None:
        """Give the slot back at once; returns it. The name is remembered."""
        for slot, holders in self._held.items():
            if any(held.actor == actor for held in holders):
                self._held[slot] = [held for held in holders if held.actor != actor]
                return slot
        return None

    def forget(self, actor: str) -> None:
        """Keep no slot for this actor to come back to."""
        self._last.pop(actor, None)

    def expire(self, now: float) -> None:
        """Forget leases that have run out."""
        for slot, holders in self._held.items():
            if holders:
                self._held[slot] = [held for held in holders if held.until > now]

    def restore(self, leases: Iterable[tuple[int, str, str, float]], now: float) -> None:
        """Leases read back after a restart, as (slot, actor, incarnation, remaining seconds)."""
        for slot, actor, incarnation, seconds in leases:
            if 0 <= slot < self.slots:
                self._held[slot].append(_Held(actor, incarnation, now + seconds))
                self._last[actor] = slot
                self.lives[slot] += 1

    def _slot_of(self, actor: str) -> int:
        for slot, holders in self._held.items():
            if any(held.actor == actor for held in holders):
                return slot
        last = self._last.get(actor)
        fewest = min(len(holders) for holders in self._held.values())
        if last is not None and len(self._held[last]) == fewest:
            return last
        # Slots that a known actor may come back for are given to newcomers only when there is no other.
        expected = {slot for name, slot in self._last.items() if name != actor}
        candidates = [slot for slot, holders in self._held.items() if len(holders) == fewest]
        return next((slot for slot in candidates if slot not in expected), candidates[0])


@dataclass(frozen=True, slots=True, eq=False)
class StoredChunk:
    """One accepted chunk as it arrived (columns still compressed) and where it went.

    ``ordinal`` counts the chunks of this table since it was built: stored ordinals are consecutive, so that readers
    follow the table with a plain cursor. ``generation`` counts the chunks of the whole run and is what a slot holds.
    """

    ordinal: int
    generation: int
    slot: int
    steps: int
    nbytes: int
    raw: RawMessage


class InsertLimiter(Protocol):
    """Whether so many more steps may come in now."""

    def can_insert(self, count: int) -> bool:
        """Whether ``count`` more steps fit now."""


class IngestTable(Protocol):
    """What the ingest needs of a table: ``ReplayTable`` in the service, ``FifoTable`` in a learner."""

    @property
    def layout(self) -> SegmentLayout:
        """Of the segments that it holds."""

    @property
    def limiter(self) -> InsertLimiter:
        """What lets inserts in."""

    @property
    def head(self) -> int:
        """Ordinal that the next chunk will get."""

    @property
    def oldest(self) -> int:
        """Ordinal of the oldest chunk; equals ``head`` where there is none."""

    def chunk(self, ordinal: int) -> StoredChunk:
        """A chunk as it arrived."""

    def insert(self, arrivals: Any) -> list[StoredChunk]:
        """Take chunks in, oldest first; those that had to go for them."""


class ExperienceLog(Protocol):
    """A durable log beside a table. Calls never block; the log itself deals with what can't be written."""

    @property
    def durable(self) -> bool:
        """Whether chunks that are acknowledged now outlive this process."""

    @property
    def acknowledged(self) -> int:
        """Chunks with an ordinal below this may be acknowledged."""

    def evicted(self, chunks: Sequence[StoredChunk]) -> None:
        """The table has dropped these."""

    def lease(self, lease: Lease) -> None:
        """A slot was taken or given back."""

    def episodes(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Finished games."""


class NoLog:
    """Stands for a log where none is kept: whatever is in ``table`` counts as accepted at once."""

    durable = False

    def __init__(self, table: IngestTable) -> None:
        self._table = table

    @property
    def acknowledged(self) -> int:
        """Everything in the table."""
        return self._table.head

    def evicted(self, chunks: Sequence[StoredChunk]) -> None:
        """Nothing to do."""

    def lease(self, lease: Lease) -> None:
        """Nothing to do."""

    def episodes(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Nothing to do."""


def read_segment(raw: RawMessage, layout: SegmentLayout, *, with_frames: bool = True) -> Segment:
    """Decode and check a message that brings a segment; raises ``InvalidSegment`` or ``MalformedMessage``.

    Without frames only the other columns are decoded. The pictures' checksums, shapes and types are checked all the same, so
    that a segment is refused here, where its sender can be told, and not by a learner that it is forwarded to; their arrays are
    then placeholders of the right shape that hold zeros and no memory.
    """
    wanted = [*(column.name for column in layout.observation), *(column.wire for column in layout.columns)]
    missing = [name for name in wanted if not raw.has(name)]
    if missing:
        raise InvalidSegment(f"{layout.kind} lacks {', '.join(missing)}")
    if extra := [name for name in raw.header.columns if name not in wanted]:
        raise InvalidSegment(f"{layout.kind} has {', '.join(extra)}, which this environment lacks")
    columns = {}
    for name in wanted:
        if with_frames or name not in PICTURES:
            columns[name] = raw.column(name)
        else:
            stored = raw.header.columns[name]
            dtype = np.dtype({"u1": np.uint8, "f4": np.float32}.get(stored.dtype, np.void))
            columns[name] = np.broadcast_to(np.zeros((), dtype), stored.shape)
    return Segment.from_parts(raw.fields, columns, layout)

"""What the ingest needs of the table that it fills, and of the log; what a table has of each chunk; epsilon slots, which a log
keeps, too: the place of an actor on the exploration ladder, which outlives its process; what was accepted of each actor (the
other half of exactly-once); and how many credits each may be given now: what is on the way never takes inserting past the
limiter's bound.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from rljob.experience import InvalidSegment, Segment, SegmentLayout
from rljob.ingest.roster import MOST_ACTORS
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


class _Held(NamedTuple):
    slot: int
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
        self.slots, self._order = slots, spread(slots)
        self._held: dict[str, _Held] = {}
        self._last: dict[str, int] = {}
        self.lives = [0] * slots
        """How many lives of actors have taken each slot."""

    def take(self, actor: str, incarnation: str, now: float) -> int:
        """Lease (or renew) a slot for an actor."""
        self.expire(now)
        before = self._held.get(actor)
        slot = before.slot if before is not None else self._free(actor)
        self.lives[slot] += before is None or before.incarnation != incarnation
        self._held[actor] = _Held(slot, incarnation, now + LEASE_SECONDS)
        self._last[actor] = slot
        return slot

    def release(self, actor: str) -> int | None:
        """Give the slot back at once; returns it. The name is remembered."""
        held = self._held.pop(actor, None)
        return None if held is None else held.slot

    def forget(self, actor: str) -> None:
        """Keep no slot for this actor to come back to."""
        self._last.pop(actor, None)

    def expire(self, now: float) -> None:
        """Forget leases that have run out."""
        self._held = {actor: held for actor, held in self._held.items() if held.until > now}

    def restore(self, leases: Iterable[tuple[int, str, str, float]], now: float) -> None:
        """Leases read back after a restart, as (slot, actor, incarnation, remaining seconds)."""
        for slot, actor, incarnation, seconds in leases:
            if 0 <= slot < self.slots:
                self._held[actor] = _Held(slot, incarnation, now + seconds)
                self._last[actor] = slot
                self.lives[slot] += 1

    def _free(self, actor: str) -> int:
        holders = Counter(held.slot for held in self._held.values())
        fewest = min(holders[slot] for slot in self._order)
        last = self._last.get(actor)
        if last is not None and holders[last] == fewest:
            return last
        # Slots that a known actor may come back for are given to newcomers only when there is no other.
        expected = {slot for name, slot in self._last.items() if name != actor}
        candidates = [slot for slot in self._order if holders[slot] == fewest]
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


class IngestTable(Protocol):
    """What the ingest needs of a table: ``ReplayTable`` in the service, ``FifoTable`` in a learner."""

    @property
    def layout(self) -> SegmentLayout:
        """Of the segments that it holds."""

    def can_insert(self, count: int) -> bool:
        """Whether so many more steps may come in now."""

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


class NoLog:
    """Stands for a log where none is kept: whatever is in ``table`` counts as accepted at once. A durable log
    (`rljob.replay.durability`) deals itself with what can't be written; its calls never block."""

    durable = False
    """Whether chunks that are acknowledged now outlive this process."""

    def __init__(self, table: IngestTable) -> None:
        self._table: Any = table

    @property
    def acknowledged(self) -> int:
        """Chunks with an ordinal below this may be acknowledged."""
        return int(self._table.head)

    def evicted(self, chunks: Sequence[StoredChunk]) -> None:
        """The table has dropped these."""

    def lease(self, lease: Lease) -> None:
        """A slot was taken or given back."""

    def episodes(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Finished games."""


def read_segment(raw: RawMessage, layout: SegmentLayout, *, with_frames: bool = True) -> Segment:
    """Decode and check a message that brings a segment; raises ``InvalidSegment`` or ``MalformedMessage``.

    Without frames only the other columns are decoded. The pictures' checksums, shapes and types are checked all the same, so
    that a segment is refused here, where its sender can be told, and not by a learner that it is forwarded to; their arrays are
    then placeholders of the right shape that hold zeros and no memory.
    """
    wanted = [*(column.name for column in layout.observation), *(column.wire for column in layout.columns)]
    missing = [name for name in wanted if name not in raw.columns]
    if missing:
        raise InvalidSegment(f"{layout.kind} lacks {', '.join(missing)}")
    if extra := [name for name in raw.columns if name not in wanted]:
        raise InvalidSegment(f"{layout.kind} has {', '.join(extra)}, which this environment lacks")
    columns = {}
    for name in wanted:
        if with_frames or name not in PICTURES:
            columns[name] = raw.column(name)
        else:
            stored = raw.columns[name]
            dtype = np.dtype({"u1": np.uint8, "f4": np.float32}.get(stored.dtype, np.void))
            columns[name] = np.broadcast_to(np.zeros((), dtype), stored.shape)
    return Segment.from_parts(raw.fields, columns, layout)


@dataclass(frozen=True, slots=True)
class Accepted:
    """What was accepted from the latest incarnation of an actor: up to which sequence number, and how many transitions."""

    incarnation: str
    sequence: int
    transitions: int


class AcceptedOfActors:
    """What was accepted of every actor that is remembered, in the order of their latest hello, oldest first."""

    def __init__(self) -> None:
        self.by_actor: dict[str, Accepted] = {}
        self.forgotten_total = 0
        self._remembered: dict[str, None] = {}  # in order; an actor may have said hello and sent nothing

    def note(self, actor: str, incarnation: str, sequence: int, transitions: int) -> None:
        """Remember that ``sequence`` was accepted, and the transitions that it brought."""
        before = self.by_actor.get(actor)
        known = before.transitions if before is not None and before.incarnation == incarnation else 0
        self.by_actor[actor] = Accepted(incarnation, sequence, known + transitions)

    def knows(self, actor: str, incarnation: str) -> bool:
        """Whether chunks of this very incarnation were accepted."""
        accepted = self.by_actor.get(actor)
        return accepted is not None and accepted.incarnation == incarnation

    def remember(self, actor: str, present: Collection[str]) -> str | None:
        """Remember that ``actor`` said hello, and answer whom that made it forget.

        Beyond ``MOST_ACTORS`` the one that said hello longest ago and is not among ``present`` is forgotten.
        """
        self._remembered.pop(actor, None)
        self._remembered[actor] = None
        if len(self._remembered) <= MOST_ACTORS:
            return None
        stranger = next((name for name in self._remembered if name not in present and name != actor), None)
        if stranger is not None:
            del self._remembered[stranger]
            self.by_actor.pop(stranger, None)
            self.forgotten_total += 1
        return stranger


class Grants(Protocol):
    """Who may send how much now."""

    @property
    def least_version(self) -> int | None:
        """The oldest weights with which it may be played; None where that does not matter."""

    def share(self, wanted: Mapping[bytes, int], outstanding: Mapping[bytes, int], turn: int) -> dict[bytes, int]:
        """Credits by peer, at most what is ``wanted``. ``outstanding``: credits given out before and not used yet."""


def share_credits(
    wanted: Mapping[bytes, int], outstanding: int, length: int, can_insert: Callable[[int], bool], turn: int
) -> dict[bytes, int]:
    """Credits by peer: all that is ``wanted`` where there is room, else one after the other, beginning with peer ``turn``.

    ``outstanding``: credits given out before and not used yet, of all peers. Each credit is a chunk of ``length`` transitions;
    ``can_insert(n)``: whether n more transitions may come. Peers that get nothing are left out.
    """
    total = sum(wanted.values())
    if not total:
        return {}
    if can_insert((outstanding + total) * length):
        return dict(wanted)
    left, grants = dict(wanted), dict[bytes, int]()
    order = deque(wanted)
    order.rotate(-turn % len(order))
    while order and can_insert((outstanding + 1) * length):
        peer = order.popleft()
        if left[peer] > 0:
            left[peer] -= 1
            outstanding += 1
            grants[peer] = grants.get(peer, 0) + 1
            order.append(peer)
    return grants

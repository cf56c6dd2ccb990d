"""What the ingest needs of the table that it fills, and of the log; and what a table has of each chunk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rljob.experience import InvalidSegment, Segment, SegmentLayout
from rljob.ingest.leases import Lease
from rljob.observation import PICTURES
from rljob.wire import RawMessage


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

    def can_insert(self, count: int) -> bool: ...


class IngestTable(Protocol):
    """What the ingest needs of a table: ``ReplayTable`` in the service, ``FifoTable`` in a learner."""

    @property
    def layout(self) -> SegmentLayout: ...
    @property
    def limiter(self) -> InsertLimiter: ...
    @property
    def head(self) -> int: ...
    @property
    def oldest(self) -> int: ...
    def chunk(self, ordinal: int) -> StoredChunk: ...
    def insert(self, arrivals: Any) -> list[StoredChunk]: ...


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

"""What the ingest needs of the table that it fills."""

from __future__ import annotations

from typing import Any, Protocol

from rljob.ingest.stored_chunk import StoredChunk


class InsertLimiter(Protocol):
    """Whether so many more steps may come in now."""

    def can_insert(self, count: int) -> bool: ...


class IngestTable(Protocol):
    """What the ingest needs of a table: ``ReplayTable`` in the service, ``FifoTable`` in a learner."""

    @property
    def layout(self) -> Any: ...
    @property
    def limiter(self) -> InsertLimiter: ...
    @property
    def head(self) -> int: ...
    @property
    def oldest(self) -> int: ...
    def chunk(self, ordinal: int) -> StoredChunk: ...
    def insert(self, arrivals: Any) -> list[StoredChunk]: ...

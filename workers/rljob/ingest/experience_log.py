"""Where accepted experience is written down, as far as accepting it depends on that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rljob.ingest.leases import Lease
from rljob.ingest.stored_chunk import StoredChunk


class ExperienceLog(Protocol):
    """A durable log beside a table. Calls never block; what can't be written is the log's own concern."""

    @property
    def durable(self) -> bool:
        """Whether what is acknowledged now outlives this process."""

    @property
    def acknowledged(self) -> int:
        """Chunks with an ordinal below this may be acknowledged."""

    def evicted(self, chunks: Sequence[StoredChunk]) -> None:
        """The table has dropped these."""

    def lease(self, lease: Lease) -> None:
        """A slot was taken or given back."""

    def episodes(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Finished games."""


class Head(Protocol):
    """A table whose chunks are counted."""

    @property
    def head(self) -> int: ...


class NoLog:
    """Nothing is written down: whatever is in ``table`` counts as accepted at once."""

    durable = False

    def __init__(self, table: Head) -> None:
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

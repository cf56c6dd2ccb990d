"""Keeps the log in step with the table: what was handed to the writer, what is safe, and what is missing in a Redis that is
back."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from rljob.ingest.table import Lease, NoLog, StoredChunk
from rljob.replay.chunk_log import Commit, LogState
from rljob.replay.log_writer import LogWriter, WriterEvent
from rljob.replay.table import ReplayTable

log = logging.getLogger(__name__)

_CHUNKS_PER_REFILL = 256

State = Literal["Off", "Restoring", "Durable", "Refilling", "Evicting", "Down", "Full", "Lost"]
"""The state of a log; ``docs/replay-durability.md`` has the transitions."""


_NOT_DURABLE: dict[str, State] = {"down": "Down", "full": "Full", "lost": "Lost"}


class Durability(NoLog):
    """Follows a table with two cursors over its ordinals: submitted to the writer, and committed.

    While ``durable``, a chunk may be acknowledged once it is below ``acknowledged``; otherwise at once. When Redis
    fails, or is full, the cursors stop; when it takes writes again everything the table still holds is written anew, and
    the log counts as durable again once it has caught up. A Redis that drops chunks to make room is written to, and never counts
    as durable. ``state`` is where the log is, ``reason`` why it is not durable.

    ``state`` is called when a commit is built and must describe every chunk stored so far.
    """

    def __init__(self, table: ReplayTable, writer: LogWriter | None, state: Callable[[], LogState]) -> None:
        super().__init__(table)
        self._writer, self._state = writer, state
        self.durable = writer is not None
        self.reachable = writer is not None
        self.state: State = "Off" if writer is None else "Restoring"
        self.reason = ""
        self.failures_total = self._token = 0
        self.latency_seconds = 0.0
        self._submitted = self._committed = table.head
        self._clear = self._state_wanted = False
        self._evicted: list[int] = []
        self._leases: dict[int, Lease] = {}
        self._episodes: list[Mapping[str, Any]] = []
        self._weights: Callable[[], bytes] | None = None
        self._under_way: dict[int, tuple[int, float]] = {}  # by token: the head of the table then, and when it was sent

    @property
    def acknowledged(self) -> int:
        """Chunks with an ordinal below this may be acknowledged."""
        return self._committed if self.durable else super().acknowledged

    @property
    def lag_chunks(self) -> int:
        """Chunks in the table that are not yet known to be in Redis."""
        return int(self._table.head - max(self._committed, self._table.oldest))

    @property
    def up_to_date(self) -> bool:
        """Whether the log holds everything that it should by now."""
        return self.durable and self._written

    @property
    def _written(self) -> bool:
        return not self._work_waits() and not self._under_way

    @property
    def used_memory_bytes(self) -> int | None:
        """Memory that Redis takes, as it reports it, some seconds old; None before it is known."""
        return self._writer.used_memory_bytes if self._writer is not None else None

    def evicted(self, chunks: Sequence[StoredChunk]) -> None:
        """The table has dropped these; those already handed over are removed from the log."""
        self._evicted.extend(chunk.generation for chunk in chunks if chunk.ordinal < self._submitted)

    def restored(self, evicted: Sequence[int]) -> None:
        """The table now holds what the log holds, but for these generations, which had no room any more."""
        self._submitted = self._committed = self._table.head
        self._evicted.extend(evicted)
        self.state = "Durable"

    def start_over(self, reason: str) -> None:
        """The log is not what the table holds, and can't be made so piece by piece: write it anew as soon as Redis takes
        writes."""
        self.durable = False
        self.failures_total += 1
        self.state, self.reason = "Refilling", reason
        self._write_anew()

    def lease(self, lease: Lease) -> None:
        """Record a lease with the next commit."""
        self._leases[lease.slot] = lease

    def episodes(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Append finished games with the next commit; while Redis is gone only the newest are kept."""
        self._episodes.extend(entries)
        del self._episodes[:-1024]

    def snapshot(self, weights: Callable[[], bytes]) -> None:
        """Write sampling weights with the next commit; ``weights`` is called then."""
        self._weights = weights

    def touch(self) -> None:
        """Write the counters with the next commit even if no chunk is waiting."""
        self._state_wanted = True

    def pump(self) -> None:
        """Take in the writer's events and hand it as much as it has room for. Never blocks."""
        if self._writer is None:
            return
        for event in self._writer.events():
            self._take(event, self._writer)
        if self.state == "Durable" and self._writer.drops_chunks:
            self.durable = False
            self.state, self.reason = "Evicting", self._writer.drops_chunks
        elif self.state == "Evicting" and not self._writer.drops_chunks:
            self.start_over("Redis may have dropped some of the log")
        while self.reachable and self._writer.has_room and self._work_waits():
            self._submit()

    def flush(self, timeout_seconds: float) -> None:
        """Write everything that waits, for an orderly end; gives up after the timeout or when Redis is gone."""
        deadline = time.monotonic() + timeout_seconds
        self.touch()
        while self.reachable and time.monotonic() < deadline:
            self.pump()
            if self.up_to_date or (self.state == "Evicting" and self._written):
                return
            time.sleep(0.002)

    def _take(self, event: WriterEvent, writer: LogWriter) -> None:
        if event.kind == "done":
            if event.token not in self._under_way:
                return  # submitted before its writer's failure was heard of; what it wrote is written again
            head, sent_at = self._under_way.pop(event.token)
            self._committed = max(self._committed, head)
            self.latency_seconds = time.monotonic() - sent_at
            if not self.durable and self._committed == self._table.head and self.state != "Evicting":
                writer.settled()
                if writer.drops_chunks:
                    self.state, self.reason = "Evicting", writer.drops_chunks
                    return
                self.durable = True
                self.state, self.reason = "Durable", ""
                log.info("replay log: durable again, %d chunks", self._table.head - self._table.oldest)
        elif event.kind == "up":
            self.reachable, self.state = True, "Refilling"
            self._write_anew()
        else:
            self.durable = self.reachable = False
            self.failures_total += 1
            self.state, self.reason = _NOT_DURABLE[event.kind], event.reason
            self._under_way.clear()

    def _write_anew(self) -> None:
        self._submitted = self._committed = self._table.oldest
        self._clear = True
        self._evicted.clear()
        self._under_way.clear()

    def _work_waits(self) -> bool:
        return bool(
            self._submitted < self._table.head
            or self._evicted
            or self._leases
            or self._episodes
            or self._weights
            or self._state_wanted
            or self._clear
        )

    def _submit(self) -> None:
        assert self._writer is not None
        first = max(self._submitted, self._table.oldest)
        # The state says of every stored chunk that it was accepted, so that it may only be written together with all
        # of them. While refilling they were acknowledged already, as not durable, and may follow piece by piece.
        stop = self._table.head if self.durable else min(first + _CHUNKS_PER_REFILL, self._table.head)
        commit = Commit(
            chunks=[(stored.generation, stored.raw) for stored in map(self._table.chunk, range(first, stop))],
            evicted=self._evicted,
            state=self._state(),
            clear=self._clear,
            weights=self._weights() if self._weights is not None else None,
            leases=tuple(self._leases.values()),
            episodes=self._episodes,
        )
        self._token += 1
        self._under_way[self._token] = stop, time.monotonic()
        self._writer.submit(self._token, commit)
        self._submitted = stop
        self._evicted, self._episodes, self._leases = [], [], {}
        self._clear, self._weights, self._state_wanted = False, None, False

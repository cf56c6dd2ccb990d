"""The thread that writes the log: it takes commits in order, and says when they are done or Redis is gone."""

import logging
import queue
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Literal

import redis

from rljob.replay.chunk_log import ChunkLog, Commit, Memory, OwnerLost
from rljob.replay.redis_client import in_words
from rljob.threads import SupervisedThread, Waker

log = logging.getLogger(__name__)

_QUEUED_COMMITS = 4
_FIRST_PING_SECONDS, _LAST_PING_SECONDS = 0.1, 2.0
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 0.1, 30.0
_FIRST_FULL_RETRY_SECONDS, _LAST_FULL_RETRY_SECONDS = 10.0, 300.0
_ROOM_CHECK_SECONDS = 2.0
_ROOM_FRACTION = 0.2
_MEMORY_INTERVAL_SECONDS = 5.0
_RENEWAL_RETRY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class WriterEvent:
    """``done``: the commit with this ``token`` is in Redis. ``down``, ``full``: it and all after it are not, because of
    ``reason``. ``up``: Redis answers, and everything is to be written anew, beginning with a commit that clears.

    ``lost``: another service owns the log, or the writer has failed; there will be no further event.
    """

    kind: Literal["done", "down", "full", "up", "lost"]
    token: int = 0
    reason: str = ""


class LogWriter:
    """Writes commits to a ``ChunkLog`` on its own thread, at most a few waiting at a time.

    ``waker`` becomes readable when there are events; ``events`` takes them. After a failure every commit is discarded up
    to the next one that clears: the owner of the table, which may hear of the failure late, starts over with that one from
    what it has in memory. ``used_memory_bytes`` is Redis's own account, asked for at first and every few seconds, None until it
    has answered; ``drops_chunks`` says why what is written may be dropped again, empty where it is kept.

    Where Redis answers but takes no writes (full, read-only, no permission), each attempt costs what the log held. So
    attempts become rarer until the owner says ``settled``; a full server is tried at once where room has come meanwhile.
    """

    def __init__(self, chunk_log: ChunkLog) -> None:
        self._log = chunk_log
        self._commits: queue.Queue[tuple[int, Commit] | None] = queue.Queue(_QUEUED_COMMITS)
        self._events: deque[WriterEvent] = deque()
        self.waker = Waker()
        """Becomes readable when there are events."""
        self.used_memory_bytes: int | None = None
        self.drops_chunks = self._said = ""
        self._next_memory = self._next_renewal = 0.0
        self._discards = False
        self._failures = 0  # in a row, none of them followed by a log that had caught up
        self._stop = threading.Event()
        self.thread = SupervisedThread("replay-log", self._run, ended=lambda: self._tell(WriterEvent("lost")))
        """One that has ended by a defect writes nothing more; its last event is ``lost``."""
        self.thread.start()

    @property
    def has_room(self) -> bool:
        """Whether ``submit`` would take another commit now."""
        return not self._commits.full()

    def submit(self, token: int, commit: Commit) -> None:
        """Queue a commit; call only when ``has_room``. ``token`` comes back in its event."""
        self._commits.put_nowait((token, commit))

    def events(self) -> list[WriterEvent]:
        """What has happened since the last call, in order."""
        self.waker.clear()
        taken = []
        while self._events:
            taken.append(self._events.popleft())
        return taken

    def settled(self) -> None:
        """The log holds everything again; what fails from now on is a new failure. Called by the owner of the table."""
        self._failures, self._said = 0, ""

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Write what is queued, then stop."""
        self._stop.set()
        if self.thread.alive:
            try:
                self._commits.put(None, timeout=timeout_seconds)
            except queue.Full:
                log.warning("replay log: not written before the end, Redis is too slow")
        if self.thread.close(timeout_seconds):
            self.waker.close()

    def _run(self) -> None:
        self._ask_memory(time.monotonic())
        while (item := self._commits.get()) is not None:
            token, commit = item
            if self._discards and not commit.clear:
                continue
            self._discards = False
            try:
                self._log.commit(commit)
                self._tell(WriterEvent("done", token))
                self._ask_memory(time.monotonic())
                self._renew(time.monotonic())
            except OwnerLost as error:
                log.error("replay log: %s; this service goes on without a log", error)
                self._tell(WriterEvent("lost", token, str(error)))
                return
            except redis.RedisError as error:
                self._discards = True
                self._failures += 1
                if isinstance(error, redis.OutOfMemoryError):
                    self._wait_for_room(token)
                else:
                    self._fail(WriterEvent("down", token, in_words(error)))
                    self._stop.wait(_pause(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS, self._failures))
                self._reconnect()

    def _fail(self, event: WriterEvent) -> None:
        """Report a failure, only once, however often it is tried again."""
        if event.reason != self._said:
            self._said = event.reason
            log.warning("replay log: %s; going on from memory, not durable", event.reason)
        self._tell(event)

    def _memory(self) -> Memory | None:
        try:
            return self._log.memory()
        except redis.RedisError:  # not allowed to ask, or gone: the next commit will tell which
            return None

    def _ask_memory(self, now: float) -> None:
        if now >= self._next_memory:
            self._next_memory = now + _MEMORY_INTERVAL_SECONDS
            memory = self._memory()
            if memory is not None:
                self.used_memory_bytes = memory.used_bytes
                self._heed_policy(memory)

    def _renew(self, now: float) -> None:
        """At first, since a log may have been left alone for long, and then as often as the log says."""
        if self._log.renewal_seconds is None or now < self._next_renewal:
            return
        self._next_renewal = now + self._log.renewal_seconds
        try:
            self._log.renew()
        except redis.RedisError as error:
            self._next_renewal = now + _RENEWAL_RETRY_SECONDS
            log.warning("replay log: what expires could not be renewed: %s", in_words(error))

    def _heed_policy(self, memory: Memory) -> None:
        """Report whether the server may drop keys, once each time that this changes."""
        before, self.drops_chunks = self.drops_chunks, memory.drops_chunks
        if self.drops_chunks and self.drops_chunks != before:
            log.warning("replay log: %s; not durable", self.drops_chunks)
        elif before and not self.drops_chunks:
            log.info("replay log: Redis accepts writes again; writing the whole log")

    def _wait_for_room(self, token: int) -> None:
        """Report that Redis is full; return when its limit was raised, when room has come, or when it is time to try again."""
        before = self._memory()
        self._fail(WriterEvent("full", token, _full(before)))
        deadline = time.monotonic() + _pause(_FIRST_FULL_RETRY_SECONDS, _LAST_FULL_RETRY_SECONDS, self._failures)
        while not self._stop.wait(min(_ROOM_CHECK_SECONDS, max(0.0, deadline - time.monotonic()))):
            now = self._memory()
            if time.monotonic() >= deadline or (before is not None and now is not None and _room(before, now)):
                return

    def _reconnect(self) -> None:
        delay = 0.0
        while not self._stop.wait(delay):
            try:
                self._log.client.connection_pool.disconnect()
                self._log.client.ping()
            except redis.RedisError:
                delay = min(max(_FIRST_PING_SECONDS, 2 * delay), _LAST_PING_SECONDS)
                continue
            log.info("replay log: Redis answers again; writing the whole log")
            self._tell(WriterEvent("up"))
            return

    def _tell(self, event: WriterEvent) -> None:
        self._events.append(event)
        self.waker.wake()


def _pause(first_seconds: float, last_seconds: float, failures: int) -> float:
    """Seconds to wait after so many failures in a row."""
    return min(first_seconds * 2.0 ** min(failures - 1, 16), last_seconds)


def _room(before: Memory, now: Memory) -> bool:
    """Whether the limit was lifted or raised, or a good part of the memory was freed."""
    if now.limit_bytes == 0 or now.limit_bytes > before.limit_bytes:
        return True
    return now.used_bytes <= before.used_bytes - _ROOM_FRACTION * now.limit_bytes


def _full(memory: Memory | None) -> str:
    of = (
        f"maxmemory is {memory.limit_bytes / 2**20:,.1f} MiB, {memory.used_bytes / 2**20:,.1f} MiB are used"
        if memory is not None and memory.limit_bytes
        else "it refuses writes for lack of memory"
    )
    return f"Redis is full: {of}; raise maxmemory, or lower replay.capacity or replay.capacityBytes"

"""The thread that writes the log: it takes commits in order, and says when they are done or Redis is gone."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Literal

import redis

from rljob.replay.chunk_log import ChunkLog, Commit, OwnerLost
from rljob.threads import SupervisedThread

log = logging.getLogger(__name__)

_QUEUED_COMMITS = 4
_FIRST_RETRY_SECONDS = 0.1
_LAST_RETRY_SECONDS = 2.0
_MEMORY_INTERVAL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class WriterEvent:
    """``done``: the commit with this ``token`` is in Redis. ``down``: it and all after it are not. ``up``: Redis answers.

    ``lost``: another service owns the log, or the writer has failed; there will be no further event.
    """

    kind: Literal["done", "down", "up", "lost"]
    token: int = 0


class LogWriter:
    """Writes commits to a ``ChunkLog`` on its own thread, at most a few waiting at a time.

    ``fileno`` becomes readable when there are events; ``events`` takes them. After ``down`` whatever was queued is
    discarded: the owner of the table starts over from what it has in memory. ``used_memory_bytes`` is Redis's own account,
    asked for every few seconds, None until it has answered.
    """

    def __init__(self, chunk_log: ChunkLog) -> None:
        self._log = chunk_log
        self._commits: queue.Queue[tuple[int, Commit] | None] = queue.Queue(_QUEUED_COMMITS)
        self._events: deque[WriterEvent] = deque()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self.used_memory_bytes: int | None = None
        self._next_memory = 0.0
        self._stop = threading.Event()
        self._thread = SupervisedThread("replay-log", self._run, ended=lambda: self._tell(WriterEvent("lost")))
        self._thread.start()

    def fileno(self) -> int:
        """A file descriptor to poll for events."""
        return self._wake_read

    def check(self) -> None:
        """Raise ``ThreadEnded`` if the thread has ended by a defect; its last event is ``lost``."""
        self._thread.check()

    @property
    def failed(self) -> bool:
        """Whether the thread has ended by a defect: nothing more will be written."""
        return self._thread.failed

    @property
    def has_room(self) -> bool:
        """Whether ``submit`` would take another commit now."""
        return not self._commits.full()

    def submit(self, token: int, commit: Commit) -> None:
        """Queue a commit; call only when ``has_room``. ``token`` comes back in its event."""
        self._commits.put_nowait((token, commit))

    def events(self) -> list[WriterEvent]:
        """What has happened since the last call, in order."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        taken = []
        while self._events:
            taken.append(self._events.popleft())
        return taken

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Write what is queued, then stop."""
        if self._thread.alive:
            try:
                self._commits.put(None, timeout=timeout_seconds)
            except queue.Full:
                log.warning("replay log: not written before the end, Redis is too slow")
        self._stop.set()
        if self._thread.close(timeout_seconds):
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _run(self) -> None:
        while (item := self._commits.get()) is not None:
            token, commit = item
            try:
                self._log.commit(commit)
                self._tell(WriterEvent("done", token))
                self._ask_memory(time.monotonic())
            except OwnerLost as error:
                log.error("replay log: %s; this service goes on without a log", error)
                self._tell(WriterEvent("lost", token))
                return
            except redis.RedisError as error:
                log.warning("replay log: Redis failed (%s); going on without it until it is back", error)
                self._tell(WriterEvent("down", token))
                self._reconnect()

    def _ask_memory(self, now: float) -> None:
        if now < self._next_memory:
            return
        self._next_memory = now + _MEMORY_INTERVAL_SECONDS
        with contextlib.suppress(redis.RedisError):  # not allowed to ask, or gone: the next commit will tell which
            self.used_memory_bytes = self._log.used_memory_bytes()

    def _reconnect(self) -> None:
        delay = _FIRST_RETRY_SECONDS
        while not self._stop.wait(delay):
            try:
                self._log.client.connection_pool.disconnect()
                self._log.client.ping()
            except redis.RedisError:
                delay = min(2 * delay, _LAST_RETRY_SECONDS)
                continue
            # Nobody submits between "down" and "up", so that nothing newer than the failure is thrown away here.
            while not self._commits.empty():
                if self._commits.get_nowait() is None:
                    self._commits.put_nowait(None)
                    return
            log.info("replay log: Redis is back")
            self._tell(WriterEvent("up"))
            return

    def _tell(self, event: WriterEvent) -> None:
        self._events.append(event)
        with contextlib.suppress(BlockingIOError):  # full means that wake-ups are waiting already
            os.write(self._wake_write, b"!")

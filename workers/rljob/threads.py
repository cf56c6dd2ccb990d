"""The one way to run a thread in this program: it has a name, and the thread that started it hears of its end.

A thread that dies silently leaves a role that looks alive and does half of its work. So a role's threads are of three kinds:

- `SupervisedThread`: what the role can't do without. Its failure is kept and raised, with the thread's name, in the thread that
  started it, at the latest in the next turn of that thread's loop (every role's loop gives a sign of life each turn,
  `TelemetryServer.beat`, which asks `check_threads`). So the role ends, with the reason as its last words.
- `start_contained`: work for a client that can be told that it failed, such as one of a status page. A failure
  costs that piece of work and is a line of the log.
- `concurrent.futures`: parts of a computation whose results the caller waits for at once; it raises where they are waited for.

Threads that libraries start (torch's, libzmq's, the emulators') are theirs.
"""

import logging
import math
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from rljob.errors import named

log = logging.getLogger(__name__)


class ThreadEnded(RuntimeError):
    """A thread that its role can't do without has ended. ``str()`` says which and why; ``__cause__`` is what it raised."""


class _Started(threading.local):
    """The supervised threads that the current thread has started and not closed."""

    def __init__(self) -> None:
        self.threads: list[SupervisedThread] = []


_started = _Started()


class SupervisedThread:
    """``body`` on a daemon thread called ``name``, begun by ``start``.

    Raising ends it too early; so does returning before ``until`` is set, where that is given. ``ended`` is called on the thread
    when either has happened, to wake the thread that waits for its work; it must not raise. The caller
    of ``start`` calls ``close``.
    """

    def __init__(
        self,
        name: str,
        body: Callable[[], None],
        *,
        until: threading.Event | None = None,
        ended: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self._body, self._until, self._ended = body, until, ended
        self._cause: BaseException | None = None
        self._failure = ""
        self._siblings: list[SupervisedThread] = []
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; from now on the calling thread is responsible for it. Raises RuntimeError where the system has no more
        threads."""
        self._thread.start()
        self._siblings = _started.threads
        self._siblings.append(self)

    @property
    def alive(self) -> bool:
        """Whether ``body`` runs."""
        return self._thread.is_alive()

    @property
    def failed(self) -> bool:
        """Whether it has ended too early; ``check`` says why."""
        return bool(self._failure)

    def check(self) -> None:
        """Raise ThreadEnded if it has ended too early. From any thread, any number of times."""
        if self._failure:
            raise ThreadEnded(self._failure) from self._cause

    def close(self, timeout_seconds: float | None = None) -> bool:
        """Wait for its end, for ever or so long, and stop supervising it. False where it has not ended."""
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)
        if self in self._siblings:
            self._siblings.remove(self)
        return not self.alive

    def _run(self) -> None:
        try:
            self._body()
        except BaseException as cause:
            log.exception("thread %s failed", self.name)
            self._cause = cause
            self._failure = f"thread {self.name} has ended: {named(cause)}"
        else:
            if self._until is not None and not self._until.is_set():
                self._failure = f"thread {self.name} has ended: it returned without being asked to"
                log.error("%s", self._failure)
        if self._failure and self._ended is not None:
            self._ended()


class Waker:
    """Wakes a thread that waits for its sockets, for work that comes from no socket: ``wake`` may be called from any thread; the
    thread that is woken polls ``fileno`` for input and calls ``clear``."""

    def __init__(self) -> None:
        self._into, self._out = socket.socketpair()
        self._into.setblocking(False)
        self._out.setblocking(False)

    def wake(self) -> None:
        """Wake the thread; nothing happens where it is about to wake up anyway, or has closed this."""
        with suppress(BlockingIOError, OSError):
            self._into.send(b"\0")

    def fileno(self) -> int:
        """The descriptor that becomes readable."""
        return self._out.fileno()

    def clear(self) -> None:
        """Take note: the next ``wake`` is a new one."""
        with suppress(BlockingIOError):
            self._out.recv(4096)

    def close(self) -> None:
        """Release both ends, once no thread polls any more."""
        self._into.close()
        self._out.close()


def check_threads() -> None:
    """Raise ThreadEnded if a thread that the calling thread has started, and not closed, has ended too early."""
    for thread in _started.threads:
        thread.check()


def start_contained(name: str, body: Callable[[], object]) -> threading.Thread:
    """Run ``body`` on a daemon thread. Whatever it raises is a warning with its traceback in the log, and nothing else.

    Raises RuntimeError where the system has no more threads.
    """

    def contained() -> None:
        try:
            body()
        except BaseException:
            log.warning("thread %s failed", name, exc_info=True)

    thread = threading.Thread(target=contained, name=name, daemon=True)
    thread.start()
    return thread


_CGROUP: Final = Path("/sys/fs/cgroup")


def usable_cores(cgroup: Path = _CGROUP) -> int:
    """At least 1: those that this process may run on, or as many as the CPU limit of its container comes to, rounded up, where
    that is less. ``cgroup``: where the container's control groups are mounted, of version 2 or 1."""
    cores = len(os.sched_getaffinity(0))
    for files in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        with suppress(OSError, ValueError):  # "max", where there is no limit, is no number
            quota, period = map(int, " ".join((cgroup / name).read_text() for name in files).split())
            if quota > 0:
                cores = min(cores, math.ceil(quota / period))
    return cores

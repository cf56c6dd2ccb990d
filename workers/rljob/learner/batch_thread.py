"""The thread that keeps batches ready for the training loop: what all sources of batches have in common.

Wakes a thread that waits for its sockets, for work that comes from no socket.
"""

import contextlib
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from typing import Generic, TypeVar

from rljob.threads import SupervisedThread


class Waker:
    """``wake`` may be called from any thread; the thread that is woken polls ``fileno`` for input and calls ``clear``."""

    def __init__(self) -> None:
        self._into, self._out = socket.socketpair()
        self._into.setblocking(False)
        self._out.setblocking(False)

    def wake(self) -> None:
        """Wake the thread; nothing happens where it is about to wake up anyway, or has closed this."""
        with contextlib.suppress(BlockingIOError, OSError):
            self._into.send(b"\0")

    def fileno(self) -> int:
        """The descriptor that becomes readable."""
        return self._out.fileno()

    def clear(self) -> None:
        """Take note: the next ``wake`` is a new one."""
        with contextlib.suppress(BlockingIOError):
            self._out.recv(4096)

    def close(self) -> None:
        """Release both ends, once no thread polls any more."""
        self._into.close()
        self._out.close()


B = TypeVar("B")


class BatchThread(ABC, Generic[B]):
    """Runs ``_run`` on a thread of its own, once ``_thread`` is started; its end is raised by ``_taken``, as ``ThreadEnded``.

    Public methods, and ``_taken``, are for the training loop's thread.
    """

    def __init__(self, name: str) -> None:
        self._ready: deque[B] = deque()
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._waker = Waker()
        self._thread = SupervisedThread(name, self._run, until=self._stop, ended=self._wake_loop)

    @property
    def ready_batches(self) -> int:
        return len(self._ready)

    def idle(self, seconds: float) -> None:
        """Training stands still for so long."""
        time.sleep(seconds)

    def close(self) -> None:
        """Stop the thread and release its sockets."""
        self._stop.set()
        self._waker.wake()
        self._wake_loop()
        self._thread.close(timeout_seconds=5.0)
        self._waker.close()

    @abstractmethod
    def _run(self) -> None:
        """Make batches until ``_stop`` is set; a call of ``_waker.wake`` is to end a wait. Release the sockets then."""

    def _hand_over(self, batch: B) -> None:
        """The thread has made a batch ready."""
        with self._changed:
            self._ready.append(batch)
            self._changed.notify()

    def _taken(self, timeout_seconds: float) -> B | None:
        """The oldest ready batch, or None after ``timeout_seconds`` without one."""
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._thread.failed or self._stop.is_set(), timeout_seconds)
            self._thread.check()
            return self._ready.popleft() if self._ready else None

    def _wake_loop(self) -> None:
        with self._changed:
            self._changed.notify_all()

"""Wakes a thread that waits for its sockets, for work that comes from no socket."""

from __future__ import annotations

import contextlib
import socket


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

"""Hints that may be lost: `Publisher` (PUB) and `Subscriber` (SUB) of single-part notices.

PUB drops what a slow subscriber does not read, so a notice carries nothing that matters by itself: it says that
there is something new to fetch.
"""

from typing import Any, Final

import zmq

from rljob.wire import transport
from rljob.wire.security import ClientSecurity, ServerSecurity
from rljob.wire.transport import Closing, Context

MAX_NOTICE_BYTES: Final = 64


class Publisher(Closing):
    """A bound PUB socket."""

    def __init__(
        self,
        endpoint: str,
        security: ServerSecurity | None = None,
        *,
        high_water_mark: int = 16,
        context: Context | None = None,
    ) -> None:
        self.socket = transport.make_socket(context or zmq.Context.instance(), zmq.PUB, high_water_mark)
        self.endpoint, self._domain = transport.bind(self.socket, endpoint, security)

    def publish(self, notice: bytes) -> None:
        """Sends one notice of at most 64 bytes to all subscribers; raises `ValueError` for a longer one."""
        if len(notice) > MAX_NOTICE_BYTES:
            raise ValueError(f"a notice has at most {MAX_NOTICE_BYTES} bytes, this one {len(notice)}; let them fetch")
        self.socket.send(notice, zmq.NOBLOCK)

    def close(self) -> None:
        if not self.socket.closed:
            transport.unbind(self.socket, self._domain)


class Subscriber(Closing):
    """A SUB socket that takes every notice; longer or multipart ones are counted in `malformed_total` and skipped."""

    def __init__(
        self,
        endpoint: str,
        security: ClientSecurity | None = None,
        *,
        high_water_mark: int = 16,
        context: Context | None = None,
    ) -> None:
        self.socket = transport.make_socket(context or zmq.Context.instance(), zmq.SUB, high_water_mark)
        self.socket.setsockopt(zmq.SUBSCRIBE, b"")
        transport.connect(self.socket, endpoint, security)
        self.endpoint = endpoint
        self.malformed_total = 0

    def receive(self, timeout_seconds: float = 0.0) -> bytes | None:
        """The next notice, or None if there is none within the timeout (a malformed one ends the wait early)."""
        if timeout_seconds > 0 and not self.socket.poll(round(timeout_seconds * 1000), zmq.POLLIN):
            return None
        while True:
            try:
                parts: list[Any] = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return None
            if len(parts) == 1 and len(parts[0]) <= MAX_NOTICE_BYTES:
                return bytes(parts[0])
            self.malformed_total += 1

    def close(self) -> None:
        self.socket.close()

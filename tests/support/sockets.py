"""Two small messages, and waiting for one at a server."""

import time

from rljob.wire import (
    Message,
    Server,
)

PULSE = Message("pulse", {"service": "s", "known": True}, {})
GOODBYE = Message("goodbye", {"actor": "actor-0", "inc": "one"}, {})


def take(server: Server, seconds: float = 60.0) -> tuple[bytes, Message]:
    deadline = time.monotonic() + seconds
    while (received := server.receive()) is None:
        assert server.wait(deadline - time.monotonic()), "nothing came"
    return received

"""TCP ports for servers that can not choose their own."""

import random
import socket
from contextlib import ExitStack, suppress

ASKED_FOR = range(10_000, 32_000)
"""Ports that the kernel gives to nobody who connects or listens without saying where, as many do meanwhile."""


def free_ports(count: int) -> list[int]:
    """Ports of loopback that were free a moment ago; all are held at once, so that they differ."""
    found: list[int] = []
    with ExitStack() as held:
        for port in random.SystemRandom().sample(ASKED_FOR, len(ASKED_FOR)):
            with suppress(OSError):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
                found.append(port)
            if len(found) == count:
                break
    return found

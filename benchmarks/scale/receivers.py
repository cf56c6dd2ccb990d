"""Hundreds of clients of a weight server in one process: real sockets with CURVE that fetch, and drop the bytes.

They read the header of a message alone, so that their processor time is that of libzmq, and understand both ways that weights
have travelled: whole in one message, and as an announcement with parts to be asked for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgpack  # type: ignore[import-untyped]
import zmq
from rljob.wire import ClientSecurity

WINDOW = 3


class _Receiver:
    def __init__(self, endpoint: str, security: ClientSecurity, wire_version: int) -> None:
        self._wire_version = wire_version
        self.socket: Any = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.curve_serverkey = security.server_key
        self.socket.curve_secretkey, self.socket.curve_publickey = security.keys.secret, security.keys.public
        self.socket.connect(endpoint)
        self._to_ask: Iterator[int] = iter(())
        self._missing = 0
        self.received = 0

    def send(self, kind: str, fields: Mapping[str, Any]) -> None:
        self.socket.send(msgpack.packb((self._wire_version, kind, dict(fields), ())))

    def has_all(self) -> bool:
        """Take the message that is there; whether the version is complete."""
        header, *buffers = self.socket.recv_multipart(copy=False)
        _, kind, fields, columns = msgpack.unpackb(header.bytes)
        self.received += sum(map(len, buffers))
        if kind == "weights" and any(column[0] == "buffer" for column in columns):
            return True
        if kind == "weights":
            fields.pop("relay", None)
            self._missing = -(-fields.pop("size") // fields.pop("part"))
            self._to_ask = iter(range(self._missing))
            for _ in range(WINDOW):
                self._ask(fields)
        elif kind == "part":
            self._missing -= 1
            self._ask(fields)
        else:
            raise RuntimeError(f"a fetch was answered by {kind} {fields}")
        return self._missing == 0

    def _ask(self, fields: Mapping[str, Any]) -> None:
        if (index := next(self._to_ask, None)) is not None:
            self.send("want", {**fields, "index": index})


class Receivers:
    """``count`` clients of ``endpoint``. ``wire_version``: which protocol its server speaks."""

    def __init__(self, endpoint: str, security: ClientSecurity, count: int, wire_version: int) -> None:
        self._all = [_Receiver(endpoint, security, wire_version) for _ in range(count)]
        self._poller = zmq.Poller()
        for each in self._all:
            self._poller.register(each.socket, zmq.POLLIN)

    def fetch(self, have: int, timeout_seconds: float) -> tuple[int, float]:
        """Each gets a version other than ``have``: the bytes of all together, and the seconds until the last had it.

        Raises TimeoutError where one gets none.
        """
        began, before = time.monotonic(), sum(each.received for each in self._all)
        missing = {each.socket: each for each in self._all}
        for each in self._all:
            each.send("fetch", {"have": have, "epoch": 1, "evaluation": False})
        while missing:
            if time.monotonic() - began > timeout_seconds:
                raise TimeoutError(f"{len(missing)} of {len(self._all)} clients have no other version than {have}")
            for socket, _ in self._poller.poll(100):
                if missing[socket].has_all():
                    del missing[socket]
        return sum(each.received for each in self._all) - before, time.monotonic() - began

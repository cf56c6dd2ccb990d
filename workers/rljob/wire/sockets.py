"""The two ends of a conversation: `Server` (ROUTER) and `Client` (DEALER); and hints that may be lost, `Publisher` (PUB) and
`Subscriber` (SUB) of single-part notices.

Nothing here blocks except `Client.receive` and `Server.wait`, which wait as long as they are told. Nothing is dropped
silently: a send says whether it was taken, a malformed message is counted by reason and its sender told. A socket
belongs to one thread.

PUB drops what a slow subscriber does not read, so a notice carries nothing that matters by itself: it says that
there is something new to fetch.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import zmq

from rljob.wire import transport
from rljob.wire.column import Buffer
from rljob.wire.errors import MalformedMessage
from rljob.wire.message import DEFAULT, Message, MessageLimits, Part, RawMessage, decode_header, encode
from rljob.wire.schema import Scalar
from rljob.wire.security import ClientSecurity, ServerSecurity
from rljob.wire.transport import Closing, Context, Socket


class RefusalLimiter:
    """At most ``per_peer`` answers a second to one peer, and ``total`` to all: a peer gets a new name with each connection."""

    def __init__(self, clock_seconds: Callable[[], float], *, per_peer: int = 4, total: int = 50) -> None:
        self._clock, self._per_peer, self._total = clock_seconds, per_peer, total
        self._answered: Counter[bytes] = Counter()
        self._since = clock_seconds()

    def allows(self, peer: bytes) -> bool:
        """Whether this peer may be answered now; if so, the answer is counted."""
        now = self._clock()
        if now - self._since >= 1.0:
            self._answered.clear()
            self._since = now
        if self._answered[peer] >= self._per_peer or self._answered.total() >= self._total:
            return False
        self._answered[peer] += 1
        return True


_CALLS: Final = 100
_USUAL_PARTS: Final = 32
"""libzmq looks for lost connections at every hundredth part that is received. One of a client that it finds in the middle of a
message ends the process (fq.cpp, `!_more`), so it is made to look before each message that may hold the hundredth."""

# A small part received without copying keeps alive libzmq's whole 8 kB receive buffer; copying it is cheaper.
_COPY_BYTES: Final = 1 << 16


class _Endpoint(Closing):
    """What `Server` and `Client` share: reading one multipart message within the limits, counters, closing."""

    def __init__(self, socket: Socket, limits: MessageLimits) -> None:
        self.socket, self.limits = socket, limits
        self.sent_total = self.received_total = self.eagain_total = self._calls = 0
        self.malformed: Counter[str] = Counter()

    def close(self) -> None:
        self.socket.close()

    def wait(self, timeout_seconds: float) -> bool:
        """Whether something is there to receive, after waiting at most so long."""
        return bool(self.socket.poll(max(0, round(timeout_seconds * 1000)), zmq.POLLIN))

    def _read(self, max_parts: int) -> list[Buffer] | None:
        """The parts of the next message, or None if there is none. All parts of a message arrive together; the rest of one is
        lost only with its connection. Parts beyond `max_parts` + 1 are taken off the socket but not kept."""
        if self._calls + _USUAL_PARTS >= _CALLS:
            self.socket.get(zmq.EVENTS)
        parts: list[Buffer] = []
        while (frame := self._frame()) is not None:
            size = len(frame)
            if len(parts) <= max_parts:
                parts.append(frame.bytes if size < _COPY_BYTES else frame.buffer)
            if not frame.more:
                self.received_total += 1
                return parts
        return None

    def _frame(self) -> zmq.Frame | None:
        try:
            frame = self.socket.recv(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            self._calls = 0
            return None
        self._calls = (self._calls + 1) % _CALLS
        return frame

    def _write(self, parts: Sequence[Part], *, copy: bool) -> bool:
        try:
            self.socket.send_multipart(parts, zmq.NOBLOCK, copy=copy)
        except zmq.Again:
            self.eagain_total += 1
            return False
        self.sent_total += 1
        return True


class Server(_Endpoint):
    """A bound ROUTER that answers many clients.

    Peers are known by the id of their connection, which changes when they reconnect: who they are in the job's terms
    stands in their messages. An id is a number that libzmq counts up from a random start (`scatter_routing_ids`) unless
    the client chose it itself, so it proves nothing; and it is never sent. `unreachable_total` counts sends to
    peers that are gone, `eagain_total` those to peers that do not read; `refused_total` the malformed messages whose
    sender was told: not every one is, to keep the rate down.
    """

    def __init__(
        self,
        endpoint: str,
        security: ServerSecurity | None = None,
        *,
        high_water_mark: int = 64,
        limits: MessageLimits = DEFAULT,
        context: Context | None = None,
    ) -> None:
        socket = transport.make_socket(context or zmq.Context.instance(), zmq.ROUTER, high_water_mark)
        # Without this ROUTER discards what it cannot deliver and calls it sent.
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        # A second connection under a taken id gets nothing: only a client that chooses its id can bring one.
        socket.setsockopt(zmq.ROUTER_HANDOVER, 0)
        self.endpoint, self._domain = transport.bind(socket, endpoint, security)
        super().__init__(socket, limits)
        self.unreachable_total = self.refused_total = 0
        self._refusals = RefusalLimiter(time.monotonic)

    def close(self) -> None:
        """Closes the socket and its domain of allowed clients; what was not delivered is lost."""
        if not self.socket.closed:
            transport.unbind(self.socket, self._domain)

    def receive_raw(self) -> tuple[bytes, RawMessage] | None:
        """The next well-formed message and its sender, its columns checked but not decoded; None if none is waiting.

        Malformed ones on the way are counted in `malformed[reason]` and their senders told. A buffer whose checksum is
        wrong is malformed; one that does not decompress shows when its column is decoded: call `refuse` then.
        """
        while (parts := self._read(self.limits.max_parts + 1)) is not None:
            peer = bytes(parts[0])
            try:
                raw = decode_header(parts[1:], self.limits)
                raw.verify()
            except MalformedMessage as error:
                self.refuse(peer, error)
            else:
                return peer, raw
        return None

    def receive(self) -> tuple[bytes, Message] | None:
        """As `receive_raw`, decoded."""
        while (received := self.receive_raw()) is not None:
            peer, raw = received
            try:
                return peer, raw.message()
            except MalformedMessage as error:
                self.refuse(peer, error, raw.kind)
        return None

    def refuse(self, peer: bytes, error: MalformedMessage, kind: str | None = None) -> None:
        """Counts a malformed message (of that kind, where it is known) and tells its sender, at most a few times a second."""
        self.malformed[error.reason] += 1
        fields: dict[str, Scalar] = {"reason": str(error).encode("ascii", "replace")[:200].decode()}
        if kind is not None:
            fields["kind"] = kind
        if self._refusals.allows(peer) and self.send(peer, Message("refused", fields, {})):
            self.refused_total += 1

    def send(self, peer: bytes, message: Message | Sequence[Part], *, copy: bool = True) -> bool:
        """Hands a message (or the parts of one) to libzmq; False if the peer is gone or its queue is full (counted).

        With `copy=False` large parts are not copied: their memory must stay unchanged for as long as it lives. A `zmq.Frame` may
        go to any number of peers.
        """
        parts = encode(message) if isinstance(message, Message) else message
        try:
            return self._write([peer, *parts], copy=copy)
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self.unreachable_total += 1
            return False


class Client(_Endpoint):
    """A DEALER connected to one server; it reconnects by itself, as a new peer, and loses what was on the way."""

    def __init__(
        self,
        endpoint: str,
        security: ClientSecurity | None = None,
        *,
        high_water_mark: int = 64,
        limits: MessageLimits = DEFAULT,
        context: Context | None = None,
    ) -> None:
        socket = transport.make_socket(context or zmq.Context.instance(), zmq.DEALER, high_water_mark)
        # Nothing is queued for a server that is not there: `send` says False, and the caller keeps what it has.
        socket.setsockopt(zmq.IMMEDIATE, 1)
        transport.connect(socket, endpoint, security)
        super().__init__(socket, limits)
        self.endpoint = endpoint

    def send(self, message: Message | Sequence[Buffer], *, copy: bool = True) -> bool:
        """Hands a message (or the parts of one) to libzmq; False if there is no connection or its queue is full.

        With `copy=False` large parts are not copied: their memory must stay unchanged for as long as it lives.
        """
        return self._write(encode(message) if isinstance(message, Message) else message, copy=copy)

    def receive_raw(self, timeout_seconds: float = 0.0) -> RawMessage | None:
        """The next well-formed message, its columns checked but not decoded; None after the timeout."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            parts = self._read(self.limits.max_parts)
            if parts is None:
                if timeout_seconds <= 0 or not self.wait(max(0.0, deadline - time.monotonic())):
                    return None
                continue
            try:
                raw = decode_header(parts, self.limits)
                raw.verify()
                return raw
            except MalformedMessage as error:
                self.malformed[error.reason] += 1

    def receive(self, timeout_seconds: float = 0.0) -> Message | None:
        """As `receive_raw`, decoded."""
        deadline = time.monotonic() + timeout_seconds
        while (raw := self.receive_raw(max(0.0, deadline - time.monotonic()))) is not None:
            try:
                return raw.message()
            except MalformedMessage as error:
                self.count(error)
        return None

    def count(self, error: MalformedMessage) -> None:
        """Counts a message that the schema allows and that makes no sense to its receiver; it is to be ignored."""
        self.malformed[error.reason] += 1


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

"""The socket options that every socket of a job gets, and why; and the allow-list of clients: one thread that answers libzmq's
question whether a client key may come in.

libzmq asks once per CURVE handshake, by a REQ to `inproc://zeromq.zap.01` of the same context (ZeroMQ RFC 27). There
can be one answerer per context, and several servers share a context, so each server registers a domain of its own with
the keys that it allows; a domain that is not registered lets no client in.
"""

import ctypes
import logging
import os
import threading
import time
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Collection
from types import TracebackType
from typing import Any, Final, Self

import zmq
from zmq.utils import z85

from rljob.files import LONGEST_PATH_BYTES
from rljob.threads import SupervisedThread
from rljob.wire.security import ClientSecurity, ServerSecurity, require_security

log = logging.getLogger(__name__)
_ENDPOINT = "inproc://zeromq.zap.01"
_REQUEST_PARTS = 7
_LOOK_MILLISECONDS = 50
_WARNING_INTERVAL_SECONDS = 30.0


class ZapAuthenticator:
    """The answerer of one context; its thread lives while any of the ``domains`` (each with its clients' keys) is open."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self.domains: dict[bytes, frozenset[bytes]] = {}
        self.refused_total = 0
        self._next_warning = 0.0
        # The socket exists before the thread does, so that no handshake of a server bound next can miss the answerer.
        self._answers = context.socket(zmq.REP)
        self._answers.linger = 0
        try:
            self._answers.bind(_ENDPOINT)
        except zmq.ZMQError:
            self._answers.close()
            raise
        self._over = threading.Event()
        self._thread = SupervisedThread("zap", self._run, until=self._over)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread and frees the endpoint; returns when both have happened."""
        self._over.set()
        self._thread.close()

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                if self._answers.poll(_LOOK_MILLISECONDS):
                    self._answers.send_multipart(self._answer(self._answers.recv_multipart()))
        except zmq.ContextTerminated:
            self._over.set()
            log.debug("the context ended before its servers were closed")
        else:
            # close() alone frees the name only later, on another thread; the next authenticator may start at once.
            self._answers.unbind(_ENDPOINT)
        finally:
            self._answers.close()

    def _answer(self, request: list[bytes]) -> list[bytes]:
        if len(request) != _REQUEST_PARTS:
            return [b"1.0", request[1] if len(request) > 1 else b"", b"500", b"unexpected request", b"", b""]
        version, request_id, domain, address, _identity, mechanism, key = request
        if mechanism == b"CURVE" and key in self.domains.get(domain, frozenset()):
            return [version, request_id, b"200", b"OK", z85.encode(key), b""]
        self.refused_total += 1
        if (
            time.monotonic() >= self._next_warning
        ):  # at once and then rarely: clients without a key must not fill the log
            self._next_warning = time.monotonic() + _WARNING_INTERVAL_SECONDS
            log.warning(
                "refused a connection from %s: its key is not one of this job's (%d refused so far)",
                address.decode("ascii", "backslashreplace")[:64] or "an unknown address",
                self.refused_total,
            )
        return [version, request_id, b"400", b"this client key is not allowed", b"", b""]


_authenticators: weakref.WeakKeyDictionary[zmq.Context[zmq.Socket[bytes]], ZapAuthenticator] = (
    weakref.WeakKeyDictionary()
)
_lock = threading.Lock()


def start_authenticator(context: zmq.Context[zmq.Socket[bytes]], clients: Collection[bytes]) -> bytes:
    """Registers a new domain that lets `clients` (public keys, Z85) in and returns its name, for `ZMQ_ZAP_DOMAIN`.

    Call it before the socket binds: without an answerer every handshake would fail. Raises `zmq.ZMQError` if
    something else answers in this context.
    """
    domain = uuid.uuid4().hex.encode()
    with _lock:
        authenticator = _authenticators.get(context)
        if authenticator is None:
            authenticator = _authenticators[context] = ZapAuthenticator(context)
        authenticator.domains[domain] = frozenset(z85.decode(key) for key in clients)
    return domain


def stop_authenticator(context: zmq.Context[zmq.Socket[bytes]], domain: bytes) -> None:
    """Closes the domain of a socket that is closed; the last one stops the thread."""
    with _lock:
        authenticator = _authenticators.get(context)
        if authenticator is not None:
            authenticator.domains.pop(domain, None)
            if not authenticator.domains:
                del _authenticators[context]
                authenticator.stop()


def refused_handshakes_total(context: zmq.Context[zmq.Socket[bytes]] | None = None) -> int:
    """Handshakes refused since the first domain of this context (without one: of the process's own) was opened."""
    authenticator = _authenticators.get(context or zmq.Context.instance())
    return authenticator.refused_total if authenticator is not None else 0


Context = zmq.Context[Any]
Socket = zmq.Socket[Any]

MAX_PART_BYTES: Final = 1 << 29
"""No part may be larger; libzmq drops a connection that announces more, before allocating. It has no bound on the number
of parts, and gathers a message before any code sees it: a client with an allowed key can make it gather a lot."""

LINGER_MILLISECONDS: Final = 500

UNACKNOWLEDGED_MILLISECONDS: Final = 60_000
"""As long as a member may be silent before it is ended. A peer that merely does not read for so long is connected to anew."""

CONNECT_MILLISECONDS: Final = 1_000
"""As long as TCP waits until it sends the beginning of a handshake once more; the next attempt sends it as well."""

_libc = ctypes.CDLL(None)
_libc.srand.argtypes, _libc.srand.restype = [ctypes.c_uint], None


class Closing(ABC):
    """A context manager that closes itself."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Closes the socket; may be called again."""


def make_socket(context: Context, kind: int, high_water_mark: int) -> Socket:
    """An unbound socket with the options that must be set before bind or connect.

    High-water marks are in messages and small: flow control is by credits, and what a socket holds is lost with it.
    """
    scatter_routing_ids()
    socket: Socket = context.socket(kind)
    socket.setsockopt(zmq.SNDHWM, high_water_mark)
    socket.setsockopt(zmq.RCVHWM, high_water_mark)
    # A closing role's last messages get this long to leave; a peer that is gone does not hold up its end.
    socket.setsockopt(zmq.LINGER, LINGER_MILLISECONDS)
    # Nothing here blocks on purpose; the timeouts are the belt to NOBLOCK's braces.
    socket.setsockopt(zmq.SNDTIMEO, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_PART_BYTES)
    # A peer that vanished without a FIN is noticed by TCP in about 11 s where nothing is under way to it, and where something
    # is, which keeps TCP from asking, when that has not been acknowledged for long: TCP's own patience is a quarter of an hour,
    # in which a shard that began anew at another address would be waited for at the old one. ZMTP's own heartbeats stay off: a
    # process that does not read for longer than their timeout is aborted by libzmq (zeromq/libzmq#3937, "_input_stopped").
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 5)
    socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, 2)
    socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, 3)
    socket.setsockopt(zmq.TCP_MAXRT, UNACKNOWLEDGED_MILLISECONDS)
    # A service that begins anew has another address, and its name may tell the old one for a few seconds more. A connection to an
    # address from which nothing comes back is given up, and the name asked again, long before TCP would (after 127 s).
    socket.setsockopt(zmq.CONNECT_TIMEOUT, CONNECT_MILLISECONDS)
    # A connection that never completes its handshake (a port scanner, the wrong keys) is dropped.
    socket.setsockopt(zmq.HANDSHAKE_IVL, 10_000)
    socket.setsockopt(zmq.RECONNECT_IVL, 100)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1_000)
    return socket


def scatter_routing_ids() -> None:
    """Makes the ids that the next ROUTER gives its peers unguessable.

    libzmq 4.3.5 numbers the peers of a ROUTER from a start that it draws with the C library's `rand`, once, when the socket is
    made, and never seeds: without this every process begins at 6b8b4567, and so does every fork of one. A client may choose
    its own id (ZMQ_ROUTING_ID), no option refuses that, and if it holds the number that comes next, libzmq ends the process
    at the next connection (`Assertion failed: ok`, socket_base.cpp). So the start is drawn anew before each socket, which
    holds in forks as well, and no id is ever told to a peer: neither in a message nor in one of its fields.
    """
    _libc.srand(int.from_bytes(os.urandom(4), "little"))


def bind(socket: Socket, endpoint: str, security: ServerSecurity | None) -> tuple[str, bytes | None]:
    """Binds and returns the resolved endpoint (with the port that was chosen) and the ZAP domain, if any.

    Closes the socket and raises `SecurityProblem` for an address beyond loopback without keys, `ValueError` or
    `zmq.ZMQError` (naming the endpoint) for one that cannot be bound.
    """
    domain: bytes | None = None
    try:
        check_endpoint(endpoint)
        require_security(endpoint, security)
        if security is not None and not endpoint.startswith("inproc://"):
            domain = start_authenticator(socket.context, security.allowed_clients)
            socket.setsockopt(zmq.ZAP_DOMAIN, domain)
            # Without this, a handshake that finds no authenticator is let in.
            socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
            socket.setsockopt(zmq.CURVE_SERVER, 1)
            socket.setsockopt(zmq.CURVE_SECRETKEY, security.keys.secret)
            socket.setsockopt(zmq.CURVE_PUBLICKEY, security.keys.public)
        _choose_family(socket, endpoint)
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            raise zmq.ZMQError(error.errno, f"cannot bind {endpoint}: {error.strerror}") from error
        return socket.get_string(zmq.LAST_ENDPOINT).rstrip("\0") or endpoint, domain
    except BaseException:
        unbind(socket, domain)
        raise


def unbind(socket: Socket, domain: bytes | None) -> None:
    """Closes a bound socket and then its domain of allowed clients, in this order, so that it never listens without one."""
    context = socket.context
    endpoint = "" if socket.closed else socket.get_string(zmq.LAST_ENDPOINT).rstrip("\0")
    if endpoint.startswith("inproc://"):
        # libzmq closes in the background; until it has, a new socket of the same name is told that it is taken.
        socket.unbind(endpoint)
    socket.close()
    if domain is not None:
        stop_authenticator(context, domain)


def connect(socket: Socket, endpoint: str, security: ClientSecurity | None) -> None:
    """Starts connecting (libzmq goes on in the background, for ever); closes the socket and raises as `bind` does."""
    try:
        check_endpoint(endpoint)
        require_security(endpoint, security)
        if security is not None and not endpoint.startswith("inproc://"):
            socket.setsockopt(zmq.CURVE_SERVERKEY, security.server_key)
            socket.setsockopt(zmq.CURVE_SECRETKEY, security.keys.secret)
            socket.setsockopt(zmq.CURVE_PUBLICKEY, security.keys.public)
        _choose_family(socket, endpoint)
        try:
            socket.connect(endpoint)
        except zmq.ZMQError as error:
            raise zmq.ZMQError(error.errno, f"cannot connect to {endpoint}: {error.strerror}") from error
    except BaseException:
        socket.close()
        raise


def _choose_family(socket: Socket, endpoint: str) -> None:
    """Let ``tcp://*`` take connections over IPv4 and IPv6, and names have addresses of either (of IPv6 where they have both).

    libzmq falls back to IPv4 by itself where the kernel has no IPv6. An IPv4 address stays what it is, and localhost means the
    one that servers of this machine bind by default.
    """
    host = endpoint.rpartition("://")[2].rpartition(":")[0]
    socket.setsockopt(zmq.IPV6, int(host != "localhost" and not host.replace(".", "").isdecimal()))


def check_endpoint(endpoint: str) -> None:
    """Raises `ValueError` for an endpoint that could only fail later and obscurely."""
    scheme, separator, address = endpoint.partition("://")
    if not separator or scheme not in ("tcp", "ipc", "inproc") or not address:
        raise ValueError(f"{endpoint!r} is not an endpoint; write tcp://host:port, ipc:///path or inproc://name")
    if scheme == "ipc" and len(address.encode()) > LONGEST_PATH_BYTES:
        raise ValueError(f"{endpoint!r}: a unix socket's path has at most {LONGEST_PATH_BYTES} bytes")

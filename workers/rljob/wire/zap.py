"""The allow-list of clients: one thread that answers libzmq's question whether a client key may come in.

libzmq asks once per CURVE handshake, by a REQ to `inproc://zeromq.zap.01` of the same context (ZeroMQ RFC 27). There
can be one answerer per context, and several servers share a context, so each server registers a domain of its own with
the keys that it allows; a domain that is not registered lets no client in.
"""

import contextlib
import logging
import threading
import time
import uuid
import weakref
from collections.abc import Collection

import zmq
from zmq.utils import z85

from rljob.threads import SupervisedThread

_log = logging.getLogger(__name__)
_ENDPOINT = "inproc://zeromq.zap.01"
_REQUEST_PARTS = 7
_WARNING_INTERVAL_SECONDS = 30.0


class ZapAuthenticator:
    """The answerer of one context; `start_authenticator` makes it, and its thread lives while any domain is open."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._domains: dict[bytes, frozenset[bytes]] = {}
        self.refused_total = 0
        self._warned_total, self._next_warning = 0, 0.0
        # Both sockets exist before the thread does, so that no handshake of a server bound next can miss the answerer.
        self._answers = context.socket(zmq.REP)
        self._answers.linger = 0
        self._stop = context.socket(zmq.PAIR)
        self._stop.linger = 0
        self._stopped = context.socket(zmq.PAIR)
        self._stopped.linger = 0
        stop_endpoint = f"inproc://rljob-zap-stop-{uuid.uuid4().hex}"
        try:
            self._answers.bind(_ENDPOINT)
            self._stopped.bind(stop_endpoint)
            self._stop.connect(stop_endpoint)
        except zmq.ZMQError:
            for socket in (self._answers, self._stop, self._stopped):
                socket.close()
            raise
        self._over = threading.Event()
        self._thread = SupervisedThread("zap", self._run, until=self._over)
        self._thread.start()

    def allow(self, domain: bytes, clients: Collection[bytes]) -> None:
        """Lets the clients with these public keys (Z85) into `domain`, replacing what was allowed there."""
        self._domains[domain] = frozenset(z85.decode(key) for key in clients)

    def withdraw(self, domain: bytes) -> bool:
        """Closes `domain`; True if no domain is left open."""
        self._domains.pop(domain, None)
        return not self._domains

    def stop(self) -> None:
        """Ends the thread and frees the endpoint; returns when both have happened."""
        self._over.set()
        with contextlib.suppress(zmq.Again):  # it is not taken any more: the thread has failed
            self._stop.send(b"", zmq.NOBLOCK)
        self._thread.close()
        self._stop.close()

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._answers, zmq.POLLIN)
        poller.register(self._stopped, zmq.POLLIN)
        try:
            while self._stopped not in (ready := dict(poller.poll())):
                if self._answers in ready:
                    self._answers.send_multipart(self._answer(self._answers.recv_multipart()))
        except zmq.ContextTerminated:
            self._over.set()
            _log.debug("the context ended before its servers were closed")
        else:
            # close() alone frees the name only later, on another thread; the next authenticator may start at once.
            self._answers.unbind(_ENDPOINT)
        finally:
            self._answers.close()
            self._stopped.close()

    def _answer(self, request: list[bytes]) -> list[bytes]:
        if len(request) != _REQUEST_PARTS:
            return [b"1.0", request[1] if len(request) > 1 else b"", b"500", b"unexpected request", b"", b""]
        version, request_id, domain, address, _identity, mechanism, key = request
        allowed = mechanism == b"CURVE" and key in self._domains.get(domain, frozenset())
        if allowed:
            return [version, request_id, b"200", b"OK", z85.encode(key), b""]
        self.refused_total += 1
        self._warn(address, time.monotonic())
        return [version, request_id, b"400", b"this client key is not allowed", b"", b""]

    def _warn(self, address: bytes, now: float) -> None:
        """Says it at once and then rarely: clients without a key must not be able to fill the log."""
        if now < self._next_warning:
            return
        self._next_warning = now + _WARNING_INTERVAL_SECONDS
        more = self.refused_total - self._warned_total - 1
        self._warned_total = self.refused_total
        _log.warning(
            "refused a connection from %s: its key is not one of this job's%s",
            address.decode("ascii", "backslashreplace")[:64] or "an unknown address",
            f" ({more} more since the last warning)" if more else "",
        )


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
        authenticator.allow(domain, clients)
    return domain


def stop_authenticator(context: zmq.Context[zmq.Socket[bytes]], domain: bytes) -> None:
    """Closes the domain of a socket that is closed; the last one stops the thread."""
    with _lock:
        authenticator = _authenticators.get(context)
        if authenticator is not None and authenticator.withdraw(domain):
            del _authenticators[context]
            authenticator.stop()


def refused_handshakes_total(context: zmq.Context[zmq.Socket[bytes]] | None = None) -> int:
    """Handshakes refused since the first domain of this context (without one: of the process's own) was opened."""
    authenticator = _authenticators.get(context or zmq.Context.instance())
    return authenticator.refused_total if authenticator is not None else 0

"""The HTTP server of a role: Prometheus figures, liveness, readiness, the status document, and requests to the role.

It runs on daemon threads of the role's own process. A page only *reads*, and a request only leaves a note that the role's
loop picks up when it can, so no client can hold up training: the number of threads is bounded, a slow client is cut off,
and an error while answering is answered, not raised.

Every client that reaches the port may read. What leaves a note changes something: on loopback it is taken, elsewhere only with
the job's token, and never where the server has none.
"""

import hmac
import ipaddress
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from rljob.loading import place_of
from rljob.strict_json import dumps
from rljob.telemetry.profiler import PROFILER
from rljob.threads import SupervisedThread, check_threads, start_contained

log = logging.getLogger(__name__)

TOKEN_HEADER: Final = "X-RLJob-Token"
"""Carries the token where a proxy removes the Authorization header, as an API server's does."""

EVERY_INTERFACE: Final = "*"
"""Stands for an address: listen over IPv4 and IPv6, whichever the machine has."""

_MOST_CALLERS = 8
_CLIENT_TIMEOUT_SECONDS = 5.0
_LONGEST_REQUEST_BYTES = 4096

Reply = tuple[int, str, bytes]
"""HTTP status, content type, body."""


def _text(code: int, text: str) -> Reply:
    return code, "text/plain", f"{text}\n".encode()


def _json(code: int, document: Mapping[str, Any]) -> Reply:
    return code, "application/json", dumps(document).encode()


class _Server(TCPServer):
    """One daemon thread a caller, at most :data:`_MOST_CALLERS` of them; more are turned away."""

    def __init__(self, host: str, port: int, pages: "TelemetryServer") -> None:
        super().__init__((host, port), _Handler, bind_and_activate=False)
        self.socket.close()
        both = host == EVERY_INTERFACE and socket.has_dualstack_ipv6()
        if host == EVERY_INTERFACE:
            host = "::" if both else "0.0.0.0"
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.create_server((host, port), family=family, backlog=32, dualstack_ipv6=both)
        self.pages = pages
        self._began: dict[socket.socket, float] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._began) >= _MOST_CALLERS:
            self.shutdown_request(request)
            return
        self._began[request] = time.monotonic()
        start_contained(f"{self.pages.role}-answer", partial(self._serve_one, request, client_address))

    def service_actions(self) -> None:
        """Cut off the clients that take too long over all, as one does that sends a byte now and then; several times a second."""
        late = time.monotonic() - 2 * _CLIENT_TIMEOUT_SECONDS
        for request in [each for each, began in list(self._began.items()) if began < late]:
            self._began.pop(request, None)
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def _serve_one(self, request: Any, client_address: Any) -> None:
        try:
            with suppress(OSError):  # the client went away or was too slow
                self.finish_request(request, client_address)
        finally:
            self._began.pop(request, None)
            self.shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("telemetry request from %s failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """GET and POST; a client has :data:`_CLIENT_TIMEOUT_SECONDS` for each read and write."""

    timeout = _CLIENT_TIMEOUT_SECONDS
    server: _Server
    server_version = "rljob"
    sys_version = ""

    def do_GET(self) -> None:
        self._reply(*self.server.pages.answer(self.path.partition("?")[0], self.headers.get("Accept", "")))

    def do_POST(self) -> None:
        token, length = self.headers.get(TOKEN_HEADER, ""), self.headers.get("Content-Length", "")
        reply = self.server.pages.refusal(f"Bearer {token}" if token else self.headers.get("Authorization", ""))
        if reply is None and (not length.isdecimal() or int(length) > _LONGEST_REQUEST_BYTES):
            reply = _json(413, {"error": f"a Content-Length of at most {_LONGEST_REQUEST_BYTES} bytes is needed"})
        self._reply(*(reply or self.server.pages.note(self.path.partition("?")[0], self.rfile.read(int(length)))))

    def _reply(self, code: int, content_type: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        if code == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("%s " + format, self.address_string(), *args)


LOOPBACK: Final = "127.0.0.1"


class TelemetryServer(AbstractContextManager["TelemetryServer"]):
    """Serves ``/metrics``, ``/healthz``, ``/readyz``, ``/status`` and ``/profile``; listens as soon as it is built.

    Args:
        role: the role's name, repeated in the answers of the probes.
        port: TCP port to bind; 0 takes any free one (see :attr:`port`).
        status: returns the role's status document. Called on a server thread, so it must only read. NaN and infinities
            are sent as ``null``, because JSON has no form for them; NumPy scalars are sent as numbers.
        ready: whether the role does its work now (``/readyz`` 200) or not yet (503). Called on a server thread.
        registry: the figures for ``/metrics``; None serves an empty page.
        requests: path -> what ``POST path`` leaves a note with, called on a server thread with the JSON object that was
            sent. It must be harmless to repeat and return at once; ValueError is answered as a bad request.
        host: address to bind; ``*`` is every interface, over IPv4 and IPv6, whichever of them there are.
        token_file: the job's token, read anew for each request, so that it may be replaced. Where it is given, every request
            must carry it as ``Authorization: Bearer TOKEN`` or as ``X-RLJob-Token: TOKEN``; without it requests are taken on
            loopback only.

    Raises:
        OSError: the address cannot be bound; the message names it.

    An exception in ``status``, ``ready`` or a collector becomes a 500 with the reason as its body; the server lives on.
    """

    def __init__(
        self,
        role: str,
        port: int,
        status: Callable[[], Mapping[str, Any]],
        ready: Callable[[], bool],
        registry: CollectorRegistry | None = None,
        *,
        requests: Mapping[str, Callable[[Mapping[str, Any]], None]] | None = None,
        host: str = LOOPBACK,
        token_file: Path | None = None,
    ) -> None:
        self.role, self.host = role, host
        self._status, self._ready, self._requests, self._token_file = status, ready, requests or {}, token_file
        self._registry = registry if registry is not None else CollectorRegistry()
        # (monotonic deadline of the next beat, its limit in seconds, the thread that beats)
        self._due: tuple[float, float, int] | None = None
        self._told: tuple[float, float, int] | None = None
        try:
            self._server = _Server(host, port, self)
        except OSError as error:
            where = f"{_in_a_url(host)}:{port}"
            raise OSError(error.errno, f"the {role} cannot serve its metrics on {where}: {error.strerror}") from error
        self.port: int = self._server.socket.getsockname()[1]
        self._closing = threading.Event()
        self._thread = SupervisedThread(
            f"{role}-telemetry", partial(self._server.serve_forever, poll_interval=0.2), until=self._closing
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Base address for a client on this machine, such as ``http://127.0.0.1:9100``."""
        host = {EVERY_INTERFACE: LOOPBACK, "0.0.0.0": LOOPBACK, "": LOOPBACK, "::": "::1"}.get(self.host, self.host)
        return f"http://{_in_a_url(host)}:{self.port}"

    def beat(self, within_seconds: float = 60.0) -> None:
        """The role's loop has made progress, and promises the next beat ``within_seconds`` seconds from now.

        ``/healthz`` answers 503 once a promise is broken, and the log says where the loop is then. Before the first beat the
        role counts as alive: how long a start may take is for the process that started it to say. Costs one clock reading;
        call it every turn of the loop, in the thread that started the role's other threads: a role is as alive as they are.
        Raises ``ThreadEnded`` where one of them has ended, which the loop must not catch.
        """
        check_threads()
        self.go_on(within_seconds)

    def go_on(self, within_seconds: float = 60.0) -> None:
        """As `beat`, in the middle of a turn: nothing is raised."""
        self._due = (time.monotonic() + within_seconds, within_seconds, threading.get_ident())

    def close(self) -> None:
        """Stops listening; answers under way are finished or cut off after their time limit. May be called twice."""
        self._closing.set()
        if self._thread.alive:
            self._server.shutdown()
        self._thread.close(timeout_seconds=2.0)
        self._server.server_close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def answer(self, path: str, accept: str) -> Reply:
        """The reply to ``GET path``: (HTTP status, content type, body). ``accept`` chooses the metrics' format."""
        try:
            return self._page(path, accept)
        except Exception as error:  # noqa: BLE001  whatever the role's callable raises must not end its telemetry
            return self._failed(f"answer {path}", error)

    def _page(self, path: str, accept: str) -> Reply:
        if path == "/metrics":
            encode, content_type = choose_encoder(accept)
            return 200, content_type, encode(self._registry)
        if path == "/status":
            return _json(200, self._status())
        if path == "/readyz":
            return _text(200, f"{self.role}: ready") if self._ready() else _text(503, f"{self.role}: not ready")
        if path == "/healthz":
            return self._health()
        kind, _, number = path[1:].partition("/")
        if kind == "profile" and (not number or number.isdecimal()):
            return _json(200, PROFILER.read(int(number) if number else None))
        known = "/metrics, /healthz, /readyz, /status, /profile, /profile/NUMBER"
        return _json(404, {"error": f"no such page; there are: {known}"})

    def note(self, path: str, body: bytes) -> Reply:
        """The reply to ``POST path``: (HTTP status, content type, body)."""
        take = self._requests.get(path)
        if take is None:
            known = ", ".join(sorted(self._requests)) or "none"
            return _json(404, {"error": f"no such request to the {self.role}; there are: {known}"})
        try:
            document = json.loads(body)
            if not isinstance(document, dict):
                raise ValueError("a JSON object is expected")
            take(document)
        except (ValueError, RecursionError) as error:
            return _json(400, {"error": f"{path}: {error}"})
        except Exception as error:  # noqa: BLE001  as in `answer`
            return self._failed(f"take {path}", error)
        return _json(202, {"noted": path})

    def _failed(self, what: str, error: Exception) -> Reply:
        reason = f"{self.role} cannot {what}: {type(error).__name__}: {error}"
        log.warning("%s", reason)
        return _json(500, {"error": reason})

    def refusal(self, authorization: str) -> Reply | None:
        """The reply to a request that may not be made with this Authorization header; None where it may."""
        if self._token_file is None and is_loopback(self.host):
            return None
        token = b""
        try:
            token = self._token_file.read_bytes().strip() if self._token_file is not None else b""
        except OSError as problem:
            log.warning("%s: %s can't be read: %s", self.role, self._token_file, problem.strerror)
        if not token:
            why = "requests need the job's token, which this role was not given or can't read (--token-file)"
            return _json(403, {"error": f"{self.role}: read-only on {self.host}: {why}"})
        scheme, _, given = authorization.partition(" ")
        known = hmac.compare_digest(given.strip().encode("latin-1", "replace"), token)
        if scheme.lower() == "bearer" and known:
            return None
        error = "wrong token" if authorization else "the job's token is needed, as `Authorization: Bearer TOKEN`"
        return _json(401, {"error": f"{self.role}: {error}"})

    def _health(self) -> Reply:
        due = self._due
        if due is None:
            return _text(200, f"{self.role}: starting")
        deadline, limit, thread = due
        late = time.monotonic() - deadline
        if late <= 0:
            return _text(200, f"{self.role}: alive")
        text = f"{self.role}: no progress for {limit + late:.1f} s (limit {limit:.1f} s)"
        if self._told != due:
            self._told = due
            frame = sys._current_frames().get(thread)
            log.warning("%s; it is at %s", text, place_of(frame) if frame is not None else "its end")
        return _text(503, text)


def _in_a_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what is bound to ``host``. A name other than localhost is not trusted to be."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

"""The HTTP server of a role: Prometheus figures, liveness, readiness, the status document, and requests to the role.

It runs on daemon threads of the role's own process. A page only *reads*, and a request only leaves a note that the role's
loop picks up when it can, so no client can hold up training: the number of threads is bounded, a slow client is cut off,
and an error while answering is answered, not raised.

Whoever reaches the port may read. What leaves a note changes something: on loopback it is taken, elsewhere only with the job's
token, and never where the server has none.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import logging
import math
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from rljob.threads import SupervisedThread, check_threads, start_contained

log = logging.getLogger(__name__)

LOOPBACK: Final = "127.0.0.1"
TOKEN_HEADER: Final = "X-RLJob-Token"
"""Carries the token where something in between keeps the Authorization header to itself, as an API server's proxy does."""

_MAX_THREADS = 8
_CLIENT_TIMEOUT_SECONDS = 5.0
_LONGEST_REQUEST_BYTES = 4096
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nbusy\n"


class TelemetryServer:
    """Serves ``/metrics``, ``/healthz``, ``/readyz`` and ``/status``; listens as soon as it is built.

    Args:
        role: the role's name, repeated in the answers of the probes.
        port: TCP port to bind; 0 takes any free one (see :attr:`port`).
        status: returns the role's status document. Called on a server thread, so it must only read. NaN and infinities
            are sent as ``null``, because JSON has no word for them; NumPy scalars are sent as numbers.
        ready: whether the role does its work now (``/readyz`` 200) or not yet (503). Called on a server thread.
        registry: the figures for ``/metrics``; None serves an empty page.
        requests: path -> what ``POST path`` leaves a note with, called on a server thread with the JSON object that was
            sent. It must be harmless to repeat and return at once; ValueError is answered as a bad request.
        host: address to bind.
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
        self.role = role
        self._token_file = token_file
        self._requests = dict(requests or {})
        self._status = status
        self._ready = ready
        self._registry = registry if registry is not None else CollectorRegistry()
        self._due: tuple[float, float] | None = None  # (monotonic deadline of the next beat, its limit in seconds)
        try:
            self._server = _BoundedServer((host, port), self)
        except OSError as error:
            raise OSError(
                error.errno, f"the {role} cannot serve its metrics on {host}:{port}: {error.strerror}"
            ) from error
        self.host: str = host
        self.port: int = self._server.server_address[1]
        self._closing = threading.Event()
        self._thread = SupervisedThread(
            f"{role}-telemetry", partial(self._server.serve_forever, poll_interval=0.2), until=self._closing
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Base address for a client on this machine, such as ``http://127.0.0.1:9100``."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(self.host, self.host)
        return f"http://{host}:{self.port}"

    def beat(self, within_seconds: float = 60.0) -> None:
        """The role's loop has made progress, and promises the next beat ``within_seconds`` seconds from now.

        ``/healthz`` answers 503 once a promise is broken. Before the first beat the role counts as alive: how long a
        start may take is for whoever started it to say. Costs one clock reading; call it every turn of the loop, in the
        thread that started the role's other threads: a role is as alive as they are. Raises ``ThreadEnded`` where one of
        them has ended, which the loop must not catch.
        """
        check_threads()
        self._due = (time.monotonic() + within_seconds, within_seconds)

    def close(self) -> None:
        """Stops listening; answers under way are finished or cut off after their time limit. May be called twice."""
        self._closing.set()
        if self._thread.alive:
            self._server.shutdown()
        self._thread.close(timeout_seconds=2.0)
        self._server.server_close()

    def __enter__(self) -> TelemetryServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def answer(self, path: str, accept: str) -> tuple[int, str, bytes]:
        """The reply to ``GET path``: (HTTP status, content type, body). ``accept`` chooses the metrics' format."""
        try:
            if path == "/metrics":
                encode, content_type = choose_encoder(accept)
                return 200, content_type, encode(self._registry)
            if path == "/status":
                return 200, "application/json", _dumps(self._status())
            if path == "/readyz":
                ready = bool(self._ready())
                return (
                    (200 if ready else 503),
                    "text/plain",
                    f"{self.role}: {'ready' if ready else 'not ready'}\n".encode(),
                )
            if path == "/healthz":
                return self._health()
        except Exception as error:  # noqa: BLE001  whatever the role's callable raises must not end its telemetry
            reason = f"{type(error).__name__}: {error}"
            log.warning("%s: cannot answer %s: %s", self.role, path, reason)
            return 500, "application/json", _dumps({"error": f"{self.role} cannot answer {path}: {reason}"})
        known = "/metrics, /healthz, /readyz, /status"
        return 404, "application/json", _dumps({"error": f"no such page; there are: {known}"})

    def note(self, path: str, body: bytes) -> tuple[int, str, bytes]:
        """The reply to ``POST path``: (HTTP status, content type, body)."""
        take = self._requests.get(path)
        if take is None:
            known = ", ".join(sorted(self._requests)) or "none"
            return 404, "application/json", _dumps({"error": f"no such request to the {self.role}; there are: {known}"})
        try:
            document = json.loads(body)
            if not isinstance(document, dict):
                raise ValueError("a JSON object is expected")
            take(document)
        except (ValueError, RecursionError) as error:
            return 400, "application/json", _dumps({"error": f"{path}: {error}"})
        except Exception as error:  # noqa: BLE001  as in `answer`
            reason = f"{type(error).__name__}: {error}"
            log.warning("%s: cannot take %s: %s", self.role, path, reason)
            return 500, "application/json", _dumps({"error": f"{self.role} cannot take {path}: {reason}"})
        return 202, "application/json", _dumps({"noted": path})

    def refusal(self, authorization: str) -> tuple[int, str, bytes] | None:
        """The reply to a request that may not be made with this Authorization header; None where it may."""
        if self._token_file is None:
            if is_loopback(self.host):
                return None
            error = (
                f"{self.role}: read-only on {self.host}: requests need the job's token, and this role was given none"
            )
            return 403, "application/json", _dumps({"error": f"{error} (--token-file)"})
        try:
            token = self._token_file.read_bytes().strip()
        except OSError as problem:
            log.warning("%s: %s can't be read: %s", self.role, self._token_file, problem.strerror)
            token = b""
        if not token:
            return 403, "application/json", _dumps({"error": f"{self.role}: the job's token can't be read here"})
        scheme, _, given = authorization.partition(" ")
        known = hmac.compare_digest(given.strip().encode("latin-1", "replace"), token)
        if scheme.lower() == "bearer" and known:
            return None
        error = "wrong token" if authorization else "the job's token is needed, as `Authorization: Bearer TOKEN`"
        return 401, "application/json", _dumps({"error": f"{self.role}: {error}"})

    def _health(self) -> tuple[int, str, bytes]:
        due = self._due
        if due is None:
            return 200, "text/plain", f"{self.role}: starting\n".encode()
        deadline, limit = due
        late = time.monotonic() - deadline
        if late <= 0:
            return 200, "text/plain", f"{self.role}: alive\n".encode()
        text = f"{self.role}: no progress for {limit + late:.1f} s (limit {limit:.1f} s)\n"
        return 503, "text/plain", text.encode()


class _BoundedServer(HTTPServer):
    """One daemon thread an answer, at most :data:`_MAX_THREADS` of them; more callers are told to come back."""

    allow_reuse_address = True
    request_queue_size = 32

    def __init__(self, address: tuple[str, int], telemetry: TelemetryServer) -> None:
        self.telemetry = telemetry
        self._places = threading.BoundedSemaphore(_MAX_THREADS)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Binds without the reverse name look-up of the base class, which can hang for seconds without a resolver."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            try:
                request.settimeout(0.1)
                request.sendall(_BUSY)
            except OSError:
                pass  # the caller is told when it can be told; it is turned away either way
            self.shutdown_request(request)
            return
        try:
            start_contained(f"{self.telemetry.role}-answer", partial(self._serve_one, request, client_address))
        except RuntimeError:  # no more threads: `handle_error` hears of it, and the place is free again
            self._places.release()
            raise

    def _serve_one(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass  # the client went away or was too slow: its loss
        finally:
            self.shutdown_request(request)
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("telemetry request from %s failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """GET and POST; a client has :data:`_CLIENT_TIMEOUT_SECONDS` for each read and write."""

    timeout = _CLIENT_TIMEOUT_SECONDS
    server: _BoundedServer
    server_version = "rljob"
    sys_version = ""

    def do_GET(self) -> None:
        self._reply(*self.server.telemetry.answer(self._page(), self.headers.get("Accept", "")))

    def do_POST(self) -> None:
        token = self.headers.get(TOKEN_HEADER, "")
        authorization = f"Bearer {token}" if token else self.headers.get("Authorization", "")
        refusal = self.server.telemetry.refusal(authorization)
        if refusal is not None:
            self._reply(*refusal)
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _LONGEST_REQUEST_BYTES:
            error = f"a Content-Length of at most {_LONGEST_REQUEST_BYTES} bytes is needed"
            self._reply(413, "application/json", _dumps({"error": error}))
            return
        self._reply(*self.server.telemetry.note(self._page(), self.rfile.read(int(length))))

    def _page(self) -> str:
        """The path that is asked for; what is no address is taken as it is, and found nowhere."""
        try:
            return urlsplit(self.path).path
        except ValueError:
            return self.path

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


def _dumps(document: Any) -> bytes:
    return json.dumps(finite(document), separators=(",", ":")).encode()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what is bound to ``host``. A name other than localhost is not trusted to be."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def finite(value: Any) -> Any:
    """A copy that strict JSON can carry: NaN and infinities become None, NumPy values numbers, the rest its text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [finite(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy scalars and arrays
        return finite(value.tolist())
    return str(value)

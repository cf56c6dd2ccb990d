"""An HTTP server on a bounded number of threads: a slow client is cut off, and one too many is told to come back."""

import logging
import socket
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from rljob.strict_json import dumps
from rljob.threads import start_contained

log = logging.getLogger(__name__)

TOKEN_HEADER: Final = "X-RLJob-Token"
"""Carries the token where a proxy removes the Authorization header, as an API server's does."""

EVERY_INTERFACE: Final = "*"
"""Stands for an address: listen over IPv4 and IPv6, whichever the machine has."""

_MAX_THREADS = 8
_CLIENT_TIMEOUT_SECONDS = 5.0
_LONGEST_REQUEST_BYTES = 4096
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nbusy\n"

Reply = tuple[int, str, bytes]
"""HTTP status, content type, body."""


class Pages(Protocol):
    """Answers the requests; called on the server's threads."""

    role: str

    def answer(self, path: str, accept: str) -> Reply:
        """The reply to ``GET path``; ``accept`` is the header of that name."""
        ...

    def note(self, path: str, body: bytes) -> Reply:
        """The reply to ``POST path``."""
        ...

    def refusal(self, authorization: str) -> Reply | None:
        """The reply to a POST that may not be made with this Authorization header; None where it may."""
        ...


class BoundedServer(HTTPServer):
    """One daemon thread an answer, at most :data:`_MAX_THREADS` of them; more callers are told to come back."""

    allow_reuse_address = True
    request_queue_size = 32

    def __init__(self, address: tuple[str, int], pages: Pages) -> None:
        self.pages = pages
        self._places = threading.BoundedSemaphore(_MAX_THREADS)
        host, port = address
        if host == EVERY_INTERFACE:
            host = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Binds without the reverse name look-up of the base class, which can hang for seconds without a resolver."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.address_family is socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # else :: may leave IPv4 out
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            try:
                request.settimeout(0.1)
                request.sendall(_BUSY)
            except OSError:
                pass  # the caller is told if possible; the connection is closed in any case
            self.shutdown_request(request)
            return
        try:
            start_contained(f"{self.pages.role}-answer", partial(self._serve_one, request, client_address))
        except RuntimeError:  # no more threads: `handle_error` hears of it, and the place is free again
            self._places.release()
            raise

    def _serve_one(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass  # the client went away or was too slow
        finally:
            self.shutdown_request(request)
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("telemetry request from %s failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """GET and POST; a client has :data:`_CLIENT_TIMEOUT_SECONDS` for each read and write."""

    timeout = _CLIENT_TIMEOUT_SECONDS
    server: BoundedServer
    server_version = "rljob"
    sys_version = ""

    def do_GET(self) -> None:
        self._reply(*self.server.pages.answer(self._page(), self.headers.get("Accept", "")))

    def do_POST(self) -> None:
        token = self.headers.get(TOKEN_HEADER, "")
        refusal = self.server.pages.refusal(f"Bearer {token}" if token else self.headers.get("Authorization", ""))
        if refusal is not None:
            self._reply(*refusal)
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _LONGEST_REQUEST_BYTES:
            error = f"a Content-Length of at most {_LONGEST_REQUEST_BYTES} bytes is needed"
            self._reply(413, "application/json", dumps({"error": error}).encode())
            return
        self._reply(*self.server.pages.note(self._page(), self.rfile.read(int(length))))

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

"""TLS in front of a server that has none."""

import contextlib
import selectors
import socket
import ssl
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit


@contextlib.contextmanager
def tls_proxy(context: ssl.SSLContext, url: str) -> Iterator[str]:
    """The ``rediss://localhost`` address of a server that passes on to ``url`` (``redis://HOST:PORT``), until the block ends."""
    behind = urlsplit(url)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=_pass_on, args=(listening.accept()[0],), daemon=True).start()

        def _pass_on(raw: socket.socket) -> None:
            with (
                contextlib.suppress(OSError),
                context.wrap_socket(raw, server_side=True) as client,
                socket.create_connection((behind.hostname, behind.port)) as server,
            ):
                _both_ways(client, server)

        threading.Thread(target=serve, daemon=True).start()
        yield f"rediss://localhost:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def _both_ways(client: ssl.SSLSocket, server: socket.socket) -> None:
    """Until either side has ended."""
    with selectors.DefaultSelector() as ready:
        ready.register(client, selectors.EVENT_READ, (client, server))
        ready.register(server, selectors.EVENT_READ, (server, client))
        while True:
            for key, _ in ready.select():
                source, target = key.data
                data = source.recv(1 << 16)
                while isinstance(source, ssl.SSLSocket) and source.pending():
                    data += source.recv(source.pending())
                if not data:
                    return
                target.sendall(data)

"""An address that leads to one server or another, as the name of a Service does."""

import contextlib
import socket
import threading


class Address:
    """``endpoint`` passes every connection on to where it leads now. Leading elsewhere breaks the connections that there are."""

    def __init__(self, leads_to: str) -> None:
        self._leads_to = leads_to
        self._open: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def lead_to(self, endpoint: str) -> None:
        """From now on to ``endpoint``, ``tcp://HOST:PORT``."""
        self._leads_to = endpoint
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def close(self) -> None:
        """Lead nowhere."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.lead_to("")

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listening.accept()[0]
                threading.Thread(target=self._pass_on, args=(client, self._leads_to), daemon=True).start()

    def _pass_on(self, client: socket.socket, endpoint: str) -> None:
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        with client, contextlib.suppress(OSError, ValueError), socket.create_connection((host, int(port))) as server:
            self._open += [client, server]
            threading.Thread(target=self._carry, args=(server, client), daemon=True).start()
            self._carry(client, server)

    @staticmethod
    def _carry(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while part := source.recv(1 << 16):
                sink.sendall(part)
            sink.shutdown(socket.SHUT_RDWR)

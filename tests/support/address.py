"""An address that leads to one server or another, as the name of a Service does."""

import contextlib
import queue
import socket
import threading
import time


class Address:
    """``endpoint`` passes every connection on to where it leads now. Leading elsewhere breaks the connections that there are.
    What comes back takes ``seconds`` longer; its parts do not wait for each other."""

    def __init__(self, leads_to: str, seconds: float = 0.0) -> None:
        self._leads_to, self._seconds = leads_to, seconds
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
            threading.Thread(target=self._carry, args=(server, client, self._seconds), daemon=True).start()
            self._carry(client, server, 0.0)

    @staticmethod
    def _carry(source: socket.socket, sink: socket.socket, seconds: float) -> None:
        coming: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

        def deliver() -> None:
            with contextlib.suppress(OSError):
                while (after := coming.get())[1]:
                    time.sleep(max(0.0, after[0] - time.monotonic()))
                    sink.sendall(after[1])
                sink.shutdown(socket.SHUT_RDWR)

        threading.Thread(target=deliver, daemon=True).start()
        with contextlib.suppress(OSError):
            while part := source.recv(1 << 16):
                coming.put((time.monotonic() + seconds, part))
        coming.put((0.0, b""))

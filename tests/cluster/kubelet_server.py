"""The side of a kubelet that an API server asks for logs: HTTPS on this machine, as a node of the cluster."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trustme
from aiohttp import web

from tests.cluster.control_plane import ControlPlane

NODE = "node-1"


def own_address() -> str:
    """An address of this machine that is not loopback's, to which an API server refuses to go; empty where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
            found = str(probe.getsockname()[0])
        except OSError:
            return ""
    return "" if found.startswith("127.") else found


class KubeletServer:
    """Hands out ``logs``: pod -> lines, each at a time of its own.

    ``asked`` has what was asked for: (pod, container, query).
    """

    def __init__(self) -> None:
        self.logs: dict[str, list[str]] = {}
        self.asked: list[tuple[str, str, dict[str, str]]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        pod, container = request.match_info["pod"], request.match_info["container"]
        query = dict(request.query)
        self.asked.append((pod, container, query))
        response = web.StreamResponse()
        response.content_type = "text/plain"
        await response.prepare(request)
        lines = self.logs[pod]
        for number in range(max(0, len(lines) - int(query.get("tailLines", 10**9))), len(lines)):
            time = f"2026-01-01T00:00:00.{number + 1:09}Z " if query.get("timestamps") == "true" else ""
            if time >= query.get("sinceTime", "").removesuffix("Z"):  # which the API server has cut to seconds
                await response.write(f"{time}{lines[number]}\n".encode())
        return response


@contextmanager
def kubelet_server(cluster: ControlPlane, address: str) -> Iterator[KubeletServer]:
    """Such a server at ``address``, and the node that says where it is."""
    server, loop, ready, ports = KubeletServer(), asyncio.new_event_loop(), threading.Event(), []
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert(address).configure_cert(tls)

    async def start() -> web.AppRunner:
        application = web.Application()
        application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", server.answer)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, address, 0, ssl_context=tls).start()
        ports.append(runner.addresses[0][1])
        ready.set()
        return runner

    def serve() -> None:
        runner = loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        assert ready.wait(30)
        state: dict[str, Any] = {
            "addresses": [{"type": "InternalIP", "address": address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": ports[0]}},
        }
        cluster.create("/api/v1/nodes", {"metadata": {"name": NODE}})
        cluster.change(f"/api/v1/nodes/{NODE}/status", {"status": state})
        yield server
    finally:
        cluster.request("DELETE", f"/api/v1/nodes/{NODE}")
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)

"""A way to the real API server on which answers get lost, calls are refused and watches are cut, as often as one likes.

It takes plain HTTP from the client that is to suffer and asks the server as an administrator.
"""

import asyncio
import json
import random
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from aiohttp import web
from rljob_operator.kube.apiserver.access import load_access

from tests.cluster.control_plane import ControlPlane

RETRY_AFTER_SECONDS = 1
LONGEST_WATCH_SECONDS = 3.0
_REASONS = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}


@dataclass(slots=True)
class BadProxy:
    """Between a client and the server at ``url``.

    Attributes:
        shares: what goes wrong with which share of calls: a status code; ``lost``: it is carried out, and the answer is cut off;
            ``cut``: a watch ends after moments, some of them with 410. 409 is for what changes objects alone.
        spared: calls with this word in their path are left alone.
        asked: calls by method; ``spoilt``: what went wrong, how often.
        watches: those under way; what is in ``silent``, too, stays open and says nothing more.
    """

    url: str
    session: aiohttp.ClientSession
    shares: Mapping[int | str, float] = field(default_factory=dict)
    spared: str = "leases"
    asked: Counter[str] = field(default_factory=Counter)
    spoilt: Counter[int | str] = field(default_factory=Counter)
    draw: random.Random = field(default_factory=lambda: random.Random(7))
    watches: set[asyncio.Timeout] = field(default_factory=set)
    silent: set[asyncio.Timeout] = field(default_factory=set)

    def spoil(self, shares: Mapping[int | str, float]) -> None:
        """From now on; watches that go on already are cut, too."""
        self.shares = shares
        for watch in self.watches:
            if self.draw.random() < shares.get("cut", 0.0):
                self.spoilt["cut"] += 1
                watch.reschedule(asyncio.get_running_loop().time() + self.draw.uniform(0.1, LONGEST_WATCH_SECONDS))

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        """One call."""
        watch = request.query.get("watch") in ("true", "1")
        self.asked["watch" if watch else request.method] += 1
        fault = None if self.spared in request.path else self._fault(request, watch)
        if fault is not None:
            self.spoilt[fault] += 1
        if isinstance(fault, int):
            return _refusal(fault)
        headers = {name: request.headers[name] for name in ("Accept", "Content-Type") if name in request.headers}
        async with self.session.request(
            request.method, f"{self.url}{request.raw_path}", data=await request.read() or None, headers=headers
        ) as answer:
            if fault == "lost":
                await answer.read()
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            passed = {"Content-Type": answer.content_type}
            response = web.StreamResponse(status=answer.status, headers=passed)
            with suppress(ConnectionError):  # the client that asked has gone
                await response.prepare(request)
                await self._copy(answer, response, watch=watch, cut=fault == "cut")
            return response

    async def _copy(
        self, answer: aiohttp.ClientResponse, response: web.StreamResponse, *, watch: bool, cut: bool
    ) -> None:
        longest = asyncio.timeout(self.draw.uniform(0.1, LONGEST_WATCH_SECONDS) if cut else None)
        try:
            async with longest:
                if watch:
                    self.watches.add(longest)
                async for piece in answer.content.iter_any():
                    if longest not in self.silent:
                        await response.write(piece)
        except TimeoutError:
            if self.draw.random() < 0.5:
                await response.write(b"\n" + json.dumps({"type": "ERROR", "object": _status(410)}).encode() + b"\n")
        finally:
            self.watches.discard(longest)

    def _fault(self, request: web.Request, watch: bool) -> int | str | None:
        drawn = self.draw.random()
        for fault, share in self.shares.items():
            drawn -= share
            if drawn < 0:
                fits = watch if fault == "cut" else fault != 409 or request.method in ("PATCH", "DELETE")
                return fault if fits and not (watch and fault == "lost") else None
        return None


@asynccontextmanager
async def bad_proxy(cluster: ControlPlane, folder: Path) -> AsyncIterator[tuple[BadProxy, Path]]:
    """The proxy, which spoils nothing yet, and a kubeconfig that leads to it."""
    said = (await load_access(str(cluster.kubeconfig))).configuration
    tls = ssl.create_default_context(cafile=said.ssl_ca_cert)
    assert said.cert_file is not None
    tls.load_cert_chain(said.cert_file, said.key_file)
    connector = aiohttp.TCPConnector(ssl=tls, limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=True) as session:
        proxy = BadProxy(cluster.url, session)
        app = web.Application(client_max_size=8 << 20)
        app.router.add_route("*", "/{path:.*}", proxy.pass_on)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield proxy, cluster.kubeconfig_for(folder, {}, f"http://127.0.0.1:{runner.addresses[0][1]}")
        finally:
            await runner.cleanup()


def _status(code: int) -> dict[str, object]:
    return {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": _REASONS[code],
        "message": f"spoilt: {code}", "details": {"retryAfterSeconds": RETRY_AFTER_SECONDS} if code == 429 else {},
    }  # fmt: skip


def _refusal(code: int) -> web.Response:
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)} if code == 429 else {}
    return web.json_response(_status(code), status=code, headers=headers)

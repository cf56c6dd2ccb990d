"""A small HTTP server for faults that a real API server can't be made to produce when a test wants them.

It answers each request with the next of a list of answers. What an API server really does is tested in `tests/cluster`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from kubernetes.aio.client.configuration import Configuration
from rljob_operator.kube.apiserver.access import Access
from rljob_operator.kube.apiserver.client import Client

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class FakeApiServer:
    """``answers`` are used up in order; the last one is given again and again. ``asked`` has all requests."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[web.Request] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        await request.read()  # so that a test can look at it afterwards
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(request)


@asynccontextmanager
async def served(*answers: Answer, **options: Any) -> AsyncIterator[tuple[FakeApiServer, Client]]:
    """Such a server and a client of it."""
    server = FakeApiServer(*answers)
    async with listening(web.route("*", "/{path:.*}", server.handle)) as server.url:
        client = Client(Access(Configuration(host=server.url), "default", None, None), **options)
        try:
            yield server, client
        finally:
            await client.close()


@asynccontextmanager
async def listening(*routes: web.RouteDef) -> AsyncIterator[str]:
    """A server on loopback with these routes; its address."""
    application = web.Application()
    application.add_routes(routes)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def says(code: int, document: Any, headers: dict[str, str] | None = None) -> Answer:
    """An answer with a JSON body."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(document, status=code, headers=headers)

    return answer


def text(code: int, words: str) -> Answer:
    """An answer that is no JSON, as one of a server in a pod."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=code, text=words)

    return answer


def refuses(code: int, reason: str = "", message: str = "", headers: dict[str, str] | None = None) -> Answer:
    """An answer with a Status object."""
    return says(code, {"kind": "Status", "reason": reason, "message": message, "code": code}, headers)


def listed(version: str, *items: dict[str, Any], more: str | None = None) -> Answer:
    """A page of a list."""
    return says(200, {"metadata": {"resourceVersion": version, **({"continue": more} if more else {})}, "items": items})


def streams(*events: Any, cut: bool = False, hang: bool = False) -> Answer:
    """A watch: each event a line, ``bytes`` as they are. Then it ends, breaks off without an end, or says nothing more."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for event in events:
            await response.write(event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n")
        if hang:
            await asyncio.sleep(3600)
        if cut:
            assert request.transport is not None
            await asyncio.sleep(0.05)  # so that what was written is sent
            request.transport.abort()
        return response

    return answer


def never() -> Answer:
    """No answer."""

    async def answer(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(3600)
        return web.Response()

    return answer

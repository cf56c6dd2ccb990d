"""One call to the API server: sent with the login, bounded in time, counted, its refusals raised as types; and the events of a
watch, one JSON object a line.

It stands on the library's `ApiClient` for the connection, TLS and login, and leaves its generated models alone. Nothing is tried
again here, apart from a call whose token the server refused: the caller knows what a repetition would mean.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import aiohttp
from aiohttp import StreamReader
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.rest import RESTResponse
from kubernetes.aio.config import ConfigException

from rljob_operator.kube.apiserver.access import Access
from rljob_operator.kube.apiserver.errors import ApiError, Unauthorized, Unavailable, error_of
from rljob_operator.kube.apiserver.resources import Object

log = logging.getLogger(__name__)

USER_AGENT = "rljob-operator"
CLOCKS_AGREE_SECONDS: Final = 5.0
JSON = "application/json"
_CHANNELS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""How a command's streams share one connection: the first byte of a message says which one it is of."""

CallObserver = Callable[[str, str, str, float], None]
"""Told of every call when it has ended: verb, resource (``pods``, ``rljobs/status``), code, seconds.

The code is the server's, or ``timeout``, ``connection`` or ``cancelled`` where it sent none."""


@dataclass(frozen=True, slots=True)
class Call:
    """What is sent, and as what it is counted."""

    verb: str
    method: str
    path: str
    counted_as: str
    query: Mapping[str, str | int]
    body: Any = None
    content_type: str = JSON
    accept: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


def whole_numbers(value: Any) -> Any:
    """A copy of ``value`` with 2.0 as 2, as kubectl sends it: the API server takes no 2.0 for an integer."""
    if isinstance(value, Mapping):
        return {key: whole_numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [whole_numbers(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Transport:
    """Sends calls on connections that are kept; for one event loop."""

    def __init__(self, access: Access, observe: CallObserver | None, timeout_seconds: float) -> None:
        self._access, self._api, self._observe = access, ApiClient(access.configuration), observe
        self._closed = False
        self.timeout_seconds = timeout_seconds
        """For a call and its whole answer, unless the caller says otherwise."""
        self.ahead_seconds = 0.0
        """How far the clock of this machine is ahead of the API server's; 0 where they agree within a few seconds."""

    async def close(self) -> None:
        """Give up all connections."""
        self._closed = True
        await self._api.close()  # type: ignore[no-untyped-call]

    async def ask(self, call: Call, timeout_seconds: float | None = None) -> Object:
        """The whole answer, a JSON object. Raises an `ApiError` where there is none."""
        limit = self.timeout_seconds if timeout_seconds is None else timeout_seconds
        async with self._answer(call, aiohttp.ClientTimeout(total=limit), limit) as answer:
            document = _json_object(await answer.read())  # type: ignore[no-untyped-call]
            if document is None:
                raise Unavailable("the API server's answer is no JSON object")
            return document

    @asynccontextmanager
    async def stream(self, call: Call, silence_seconds: float | None) -> AsyncIterator[aiohttp.StreamReader]:
        """The body of an answer as it arrives, which may take for ever, but may not be silent for longer than ``silence_seconds``
        (None: however long).

        Raises an `ApiError` where it is refused, and `Unavailable` where it breaks while it is read.
        """
        limits = aiohttp.ClientTimeout(total=None, sock_connect=self.timeout_seconds, sock_read=silence_seconds)
        async with self._answer(call, limits, self.timeout_seconds) as answer:
            yield answer.response.content

    @asynccontextmanager
    async def _answer(self, call: Call, limits: aiohttp.ClientTimeout, seconds: float) -> AsyncIterator[RESTResponse]:
        """The answer, which begins within ``seconds`` and is read within ``limits``; the call is counted at its end."""
        began, code = time.monotonic(), "cancelled"
        answer: RESTResponse | None = None
        try:
            async with asyncio.timeout(seconds):
                answer = await self._send_with_token(call, limits)
            code = str(answer.status)
            yield answer
        except TimeoutError as problem:
            code = "timeout"
            longest = limits.total or limits.sock_read or seconds
            raise Unavailable(f"the API server has not answered within {longest:g} s") from problem
        except (aiohttp.ClientError, OSError, ConfigException) as problem:
            code = "connection"
            raise Unavailable(f"the API server can't be reached: {_words(problem)}") from problem
        except ApiError as problem:
            code = str(problem.code or code)
            raise
        finally:
            if answer is not None:
                answer.response.close()
            if self._observe is not None:
                self._observe(call.verb, call.counted_as, code, time.monotonic() - began)

    async def execute(
        self, path: str, query: Sequence[tuple[str, str]], take: Callable[[bytes], bool], timeout_seconds: float
    ) -> str:
        """Run a command in a pod (pods/exec), as `Client.execute`. Raises an `ApiError` where it can't be run."""
        headers: dict[str, str] = {"User-Agent": USER_AGENT}
        await self._api.update_params_for_auth(headers, [], ["BearerToken"], path, "GET", None)
        rest = self._api.rest_client
        rest.pool_manager = rest.pool_manager or rest._create_pool_manager()
        url = f"{self._access.configuration.host}{path}?{urlencode(query)}"
        ended, errors = False, b""
        try:
            async with (
                asyncio.timeout(timeout_seconds),
                rest.pool_manager.ws_connect(
                    url, headers=headers, protocols=_CHANNELS, proxy=rest.proxy, proxy_headers=rest.proxy_headers
                ) as channels,
            ):
                async for message in channels:
                    channel, piece = message.data[0], message.data[1:]
                    if channel == 1 and take(piece):
                        await channels.send_bytes(b"\0\n")
                    elif channel == 2:
                        errors += piece
                    elif channel == 3:
                        told = _status(piece)
                        ended = told.get("status") == "Success"
                        errors = errors or str(told.get("message", "")).encode()
        except TimeoutError as problem:
            raise Unavailable(f"the command in the pod has not ended within {timeout_seconds:g} s") from problem
        except aiohttp.WSServerHandshakeError as problem:
            raise error_of(
                problem.status, {"message": f"the API server refuses pods/exec: HTTP {problem.status}"}, None
            ) from problem
        except (aiohttp.ClientError, OSError) as problem:
            raise Unavailable(f"the API server can't be reached: {_words(problem)}") from problem
        lines = errors.decode(errors="replace").strip().splitlines()
        return "" if ended else (lines[-1] if lines else "the connection to the pod was cut")

    async def _send_with_token(self, call: Call, limits: aiohttp.ClientTimeout) -> RESTResponse:
        """The answer, once it says that the call was accepted. A token that is refused is read anew, once."""
        try:
            return await self._send(call, limits)
        except Unauthorized:
            await self._access.renew()
        return await self._send(call, limits)

    async def _send(self, call: Call, limits: aiohttp.ClientTimeout) -> RESTResponse:
        if self._closed:
            raise aiohttp.ClientConnectionError("this client is closed")
        headers = {
            **call.headers, "Accept": call.accept, "Content-Type": call.content_type, "User-Agent": USER_AGENT
        }  # fmt: skip
        await self._api.update_params_for_auth(headers, [], ["BearerToken"], call.path, call.method, call.body)
        url = f"{self._access.configuration.host}{call.path}"
        if call.query:
            url += f"?{urlencode(call.query)}"
        answer = await self._api.call_api(call.method, url, headers, whole_numbers(call.body), _request_timeout=limits)
        self._compare_clocks(answer.headers.get("Date", ""))
        if 200 <= answer.status <= 299:
            return answer
        try:
            content = await answer.read()  # type: ignore[no-untyped-call]
        finally:
            answer.response.release()
        raise error_of(answer.status, _status(content), answer.headers.get("Retry-After"))

    def _compare_clocks(self, date: str) -> None:
        """Note how far this machine's clock is from the time of an answer, which has whole seconds."""
        with suppress(ValueError):
            ahead = time.time() - parsedate_to_datetime(date).timestamp()
            if abs(ahead - self.ahead_seconds) > CLOCKS_AGREE_SECONDS:
                self.ahead_seconds = ahead if abs(ahead) > CLOCKS_AGREE_SECONDS else 0.0
                log.warning(
                    "this machine's clock is %+.0f s from the API server's, whose time counts", self.ahead_seconds
                )


def _json_object(content: bytes) -> Object | None:
    with suppress(ValueError):
        document = json.loads(content)
        return document if isinstance(document, dict) else None
    return None


def _status(content: bytes) -> Object:
    """The Status object of a refusal, or the text that a proxy in between has sent."""
    return _json_object(content) or {"message": content[:500].decode(errors="replace").strip()}


def _words(problem: BaseException) -> str:
    return str(problem) or type(problem).__name__


class WatchEvent(NamedTuple):
    """One event. A BOOKMARK's object has nothing but its resource version, from where a later watch can go on."""

    kind: str
    document: Object
    resource_version: str


async def watch_events(content: StreamReader) -> AsyncGenerator[WatchEvent]:
    """The events of a watch until it ends. Raises the `ApiError` that the server sends in their place, such as `Gone`.

    A last line without its end belongs to a connection that was cut, and is dropped: the next connection sends it again.
    """
    rest = b""
    async for piece in content.iter_any():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield _event(line)


def _event(line: bytes) -> WatchEvent:
    try:
        sent = json.loads(line)
        kind, document = sent["type"], sent["object"]
        if kind == "ERROR":
            raise error_of(int(document.get("code") or 500), document, None)
        return WatchEvent(kind, document, str(document["metadata"]["resourceVersion"]))
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise Unavailable("a watch sent what is no event") from problem

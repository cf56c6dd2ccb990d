"""How a member's metrics port is reached: the methods of every way to it, what counts as an answer, and the straight way."""

import asyncio
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from rljob.api.status_document import json_document
from rljob.strict_json import dumps

LARGEST_BYTES: Final = 8 << 20
USUAL_BYTES: Final = 1 << 18
"""An answer up to this is read within 10 ms; longer ones wait for one another (`Poll`)."""
TIMEOUT_SECONDS: Final = 2.0
WORDS_BYTES: Final = 64
"""So much is read of what /healthz says."""
_HEAD_BYTES: Final = 1 << 16


class Way(StrEnum):
    """The ways to pods: at their addresses, or through the API server."""

    PODS = "pods"
    PODS_PROXY = "pods-proxy"


class NoAnswer(Exception):
    """Why a member's answer can't be used, or that there is none."""


class TooLong(NoAnswer):
    """The answer has more bytes than were asked for."""


class Reach(Protocol):
    """One way. ``url`` is where a member is asked, as this way names it."""

    async def read(self, url: str, page: str, most_bytes: int = LARGEST_BYTES) -> bytes:
        """What a page says. Raises `NoAnswer`."""

    async def health(self, url: str) -> tuple[int, str]:
        """What /healthz says, whatever that is: (HTTP status, how it begins). Raises `NoAnswer`."""

    async def send(self, url: str, page: str, document: Mapping[str, Any], token: str) -> bool:
        """Leave a request; whether it was taken."""

    async def close(self) -> None:
        """Give up all connections."""


def good(code: int, body: bytes, page: str, most_bytes: int) -> bytes:
    """The answer, unless it says that there is none, or is too long. Raises `NoAnswer`."""
    if code != 200:
        raise NoAnswer(f"its {page} answers with HTTP {code}")
    if len(body) > most_bytes:
        raise TooLong(f"its {page} has more than {most_bytes:,} bytes")
    return body


def not_in_time(timeout_seconds: float) -> NoAnswer:
    """That there was none for so long."""
    return NoAnswer(f"it has not answered within {timeout_seconds:g} s")


def unreadable(page: str, error: BaseException) -> NoAnswer:
    """That there was none for another reason."""
    return NoAnswer(f"its {page} can't be read: {error or type(error).__name__}")


class Direct:
    """At a member's own address: that of a process of this machine, or of a pod whose network is reached from here. Each question
    has a connection of its own, and ``timeout_seconds``."""

    def __init__(self, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._timeout_seconds = timeout_seconds

    async def read(self, url: str, page: str, most_bytes: int = LARGEST_BYTES) -> bytes:
        """See `Reach`."""
        return good(*await self._ask(url, page, most_bytes), page, most_bytes)

    async def health(self, url: str) -> tuple[int, str]:
        """See `Reach`."""
        code, body = await self._ask(url, "healthz", WORDS_BYTES)
        return code, body[:WORDS_BYTES].decode(errors="replace")

    async def send(self, url: str, page: str, document: Mapping[str, Any], token: str) -> bool:
        """See `Reach`."""
        try:
            code, _ = await self._ask(url, page, WORDS_BYTES, dumps(document).encode(), token)
        except NoAnswer:
            return False
        return code < 300

    async def close(self) -> None:
        """See `Reach`: none is kept."""

    async def _ask(
        self, url: str, page: str, most_bytes: int, body: bytes | None = None, token: str = ""
    ) -> tuple[int, bytes]:
        """(HTTP status, body). A stopped process still takes connections (the kernel does), so only an answer counts."""
        method = "GET" if body is None else "POST"
        lines = [f"{method} /{page} HTTP/1.1", f"Host: {urlsplit(url).netloc}", "Connection: close"]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        if token:
            lines.append(f"Authorization: Bearer {token}")
        try:
            async with asyncio.timeout(self._timeout_seconds):
                request = "\r\n".join([*lines, "", ""]).encode() + (body or b"")
                answer = await _exchange(url, request, most_bytes + _HEAD_BYTES)
        except TimeoutError:
            raise not_in_time(self._timeout_seconds) from None
        except (OSError, ValueError) as error:  # ValueError: the address is none
            raise unreadable(page, error) from None
        head, _, content = answer.partition(b"\r\n\r\n")
        protocol, _, code = head.partition(b"\r\n")[0].partition(b" ")
        if not protocol.startswith(b"HTTP/") or not code[:3].isdigit():
            raise NoAnswer(f"its {page} can't be read: it is no HTTP")
        return int(code[:3]), content


async def _exchange(url: str, request: bytes, most_bytes: int) -> bytes:
    """The whole answer, but not much more than a good answer may have."""
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        writer.write(request)
        await writer.drain()
        answer = bytearray()
        while len(answer) < most_bytes and (piece := await reader.read(1 << 16)):
            answer += piece
        return bytes(answer)
    finally:
        writer.transport.abort()


async def statuses(reach: Reach, urls: Mapping[str, str]) -> tuple[dict[str, dict[str, Any]], str]:
    """What each member says of itself, by its name, nothing of one that does not answer; and why one does not."""
    found, problem = dict[str, dict[str, Any]](), ""
    answers = await asyncio.gather(*(reach.read(url, "status") for url in urls.values()), return_exceptions=True)
    for name, answer in zip(urls, answers, strict=True):
        try:
            if isinstance(answer, BaseException):
                raise answer
            found[name] = json_document(answer)
        except (NoAnswer, ValueError) as no:
            found[name], problem = {}, problem or f"{name}: {no}"
    return found, problem

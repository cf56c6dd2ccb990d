"""The way to the members of a local run: HTTP on this machine, without a library, which would take longer to load than the
request takes."""

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from rljob.strict_json import dumps

from rljob_operator.polls import reach
from rljob_operator.polls.reach import TIMEOUT_SECONDS, NoAnswer, good, not_in_time, unreadable


class Loopback:
    """See `Reach`. Each question has a connection of its own, and ``timeout_seconds``."""

    def __init__(self, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._timeout_seconds = timeout_seconds

    async def read(self, url: str, page: str) -> bytes:
        """See `Reach`."""
        return good(*await self._ask(url, page), page)

    async def health(self, url: str) -> tuple[int, str]:
        """See `Reach`."""
        code, body = await self._ask(url, "healthz")
        return code, body.decode(errors="replace")

    async def send(self, url: str, page: str, document: Mapping[str, Any], token: str) -> bool:
        """See `Reach`."""
        try:
            code, _ = await self._ask(url, page, dumps(document).encode(), token)
        except NoAnswer:
            return False
        return code < 300

    async def close(self) -> None:
        """See `Reach`: none is kept."""

    async def _ask(self, url: str, page: str, body: bytes | None = None, token: str = "") -> tuple[int, bytes]:
        """(HTTP status, body). A stopped process still takes connections (the kernel does), so only an answer counts."""
        lines = [f"{'GET' if body is None else 'POST'} /{page} HTTP/1.0"]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        if token:
            lines.append(f"Authorization: Bearer {token}")
        try:
            async with asyncio.timeout(self._timeout_seconds):
                answer = await _exchange(url, "\r\n".join([*lines, "", ""]).encode() + (body or b""))
        except TimeoutError:
            raise not_in_time(self._timeout_seconds) from None
        except (OSError, ValueError) as error:  # ValueError: the address is none
            raise unreadable(page, error) from None
        head, _, content = answer.partition(b"\r\n\r\n")
        protocol, _, code = head.partition(b"\r\n")[0].partition(b" ")
        if not protocol.startswith(b"HTTP/") or not code[:3].isdigit():
            raise NoAnswer(f"its {page} can't be read: it is no HTTP")
        return int(code[:3]), content


async def _exchange(url: str, request: bytes) -> bytes:
    """The whole answer, but not much more than a good answer may have."""
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        writer.write(request)
        await writer.drain()
        answer = bytearray()
        while len(answer) < reach.LARGEST_BYTES + 65536 and (piece := await reader.read(65536)):
            answer += piece
        return bytes(answer)
    finally:
        writer.transport.abort()

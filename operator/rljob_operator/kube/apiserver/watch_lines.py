"""What a watch sends: one JSON object a line, as events or as the reason why it ends."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import NamedTuple

from aiohttp import StreamReader

from rljob_operator.kube.apiserver.errors import Unavailable, error_of
from rljob_operator.kube.apiserver.resources import Object


class WatchEvent(NamedTuple):
    """One event. A BOOKMARK's object has nothing but its resource version."""

    kind: str
    document: Object

    @property
    def resource_version(self) -> str:
        """From where a later watch can go on."""
        return str(self.document["metadata"]["resourceVersion"])


async def watch_events(content: StreamReader) -> AsyncGenerator[WatchEvent]:
    """The events of a watch until it ends. Raises the `ApiError` that the server sends in their place, such as `Gone`.

    A last line without its end belongs to a connection that was cut, and is dropped: what it says will be said again.
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
        event = WatchEvent(kind, document)
        _ = event.resource_version
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise Unavailable("a watch sent what is no event") from problem
    return event

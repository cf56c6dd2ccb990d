"""What a watch sends: one JSON object a line, as events or as the reason why it ends."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import NamedTuple, Protocol

from rljob_operator.kube.apiserver.errors import Unavailable, error_of
from rljob_operator.kube.apiserver.resources import Object

LONGEST_LINE_BYTES = 8 * 1024 * 1024
"""Well over what etcd stores as one object."""

_KINDS = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})


class WatchEvent(NamedTuple):
    """One event. A BOOKMARK's object has nothing but its resource version."""

    kind: str
    document: Object

    @property
    def resource_version(self) -> str:
        """From where a later watch can go on."""
        return str(self.document["metadata"]["resourceVersion"])


class Content(Protocol):
    """The body of an answer under way."""

    def iter_any(self) -> AsyncIterator[bytes]:
        """The bytes as they come."""
        ...


async def watch_events(content: Content) -> AsyncGenerator[WatchEvent]:
    """The events of a watch until it ends. Raises the `ApiError` that the server sends in their place, such as `Gone`.

    A last line without its end belongs to a connection that was cut, and is dropped: what it says will be said again.
    """
    rest = b""
    async for piece in content.iter_any():
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > LONGEST_LINE_BYTES:
            raise Unavailable("a watch sent a line beyond all bounds")
        for line in lines:
            if line.strip():
                event = _event(line)
                if event is not None:
                    yield event


def _event(line: bytes) -> WatchEvent | None:
    try:
        sent = json.loads(line)
        kind, document = sent["type"], sent["object"]
        if kind == "ERROR":
            raise error_of(int(document.get("code") or 500), document, None)
        event = WatchEvent(kind, document)
        _ = event.resource_version
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise Unavailable("a watch sent what is no event") from problem
    return event if kind in _KINDS else None

"""Objects without a namespace that the operator reads and does not watch: what Kueue's queues and priorities go by."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import Forbidden, NotFound
from rljob_operator.kube.apiserver.resources import Resource

KNOWN_SECONDS: Final = 300.0
"""What one says is believed for so long."""
MISSING_SECONDS: Final = 15.0
"""And that one is missing or may not be read, for so long."""


class ClusterObjects:
    """What was read of them, by kind and name."""

    def __init__(self, client: Client, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._client, self._monotonic = client, monotonic
        self._known: dict[tuple[str, str], tuple[float, Mapping[str, Any] | None]] = {}

    async def get(self, resource: Resource, name: str) -> Mapping[str, Any] | None:
        """None where it is missing or can't be read: an operator of single namespaces may not."""
        until, found = self._known.get((resource.kind, name), (0.0, None))
        if self._monotonic() < until:
            return found
        try:
            found = await self._client.get(resource, None, name)
        except (NotFound, Forbidden):
            found = None
        seconds = MISSING_SECONDS if found is None else KNOWN_SECONDS
        self._known[resource.kind, name] = self._monotonic() + seconds, found
        return found

"""Pods that the API server has admitted just now: it is not asked of another job's that are like them but for the job's name.

A thousand jobs of one manifest would else have three thousand pods tried that nobody makes. Only what was admitted is shared. A
refusal is told in the words of the API server, which name the pod, so every job gets its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from typing import Final

from rljob_operator.kube.apiserver.errors import Forbidden, Invalid
from rljob_operator.kube.apiserver.resources import Object

BELIEVED_SECONDS: Final = 30.0
"""Quotas, policies and limits may change at any time, and nobody watches them."""

_Place = tuple[str, bytes]


class AdmittedAlike:
    """Of all jobs of one operator; for one event loop. ``monotonic``: seconds that only go forward."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._until: dict[_Place, float] = {}
        self._asked: dict[_Place, asyncio.Event] = {}

    async def once(self, nameless: Object, ask: Callable[[], Awaitable[object]]) -> None:
        """Have ``ask`` tried, unless a pod like this one was admitted within the last `BELIEVED_SECONDS`.

        ``nameless`` is the pod with nothing of its job's own names in it: all that the API server judges, its namespace and
        service account, too. Where another job's is being asked for, its answer is waited for. Raises what ``ask`` raises.
        """
        namespace = str(nameless["metadata"]["namespace"])
        place = namespace, hashlib.sha256(json.dumps(nameless, sort_keys=True).encode()).digest()
        asked = self._asked.get(place)
        if asked is not None:
            await asked.wait()
        if self._monotonic() < self._until.get(place, float("-inf")):
            return
        answered = self._asked[place] = asyncio.Event()
        try:
            await ask()
            self._note(place)
        except (Forbidden, Invalid):
            self.forget(namespace)
            raise
        finally:
            answered.set()
            if self._asked.get(place) is answered:
                del self._asked[place]

    def forget(self, namespace: str) -> None:
        """A pod was refused there: what was admitted before may not be any more, as where a quota is used up."""
        for place in [each for each in self._until if each[0] == namespace]:
            del self._until[place]

    def _note(self, place: _Place) -> None:
        now = self._monotonic()
        self._until = {each: until for each, until in self._until.items() if now < until}
        self._until[place] = now + BELIEVED_SECONDS

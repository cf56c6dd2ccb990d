"""Weights from another actor of the same node: who takes them from whom, and the actor that passes them on.

A relay is trusted with nothing: whoever gets a part from it compares it with the digest that the learner told.
"""

import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from rljob.threads import SupervisedThread
from rljob.wire import MalformedMessage, Message, Server, ServerSecurity
from rljob.wire.schema import Scalar

RELAY_SECONDS: Final = 3.0
"""Without a word from its relay for so long, a client asks the learner."""
_GONE_SECONDS: Final = 60.0
"""While it fetches a large version over a slow link an actor says nothing to the learner."""
_CHILDREN: Final = 4
_VERSIONS: Final = 2
_REQUESTS: Final = 64
_WORD_SECONDS: Final = 0.5


class RelayTree:
    """The learner's part: the actors of each node as a tree, in the order in which they came; only the first asks the learner."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[str, float]] = {}

    def parent(self, fetch: Mapping[str, Scalar]) -> str:
        """The endpoint to take parts from, for a client that says where it gives them itself; "" is the learner's own."""
        node, own, now = str(fetch.get("node", "")), str(fetch.get("serves", "")), time.monotonic()
        if not own:
            return ""
        self._heard = {each: place for each, place in self._heard.items() if now - place[1] < _GONE_SECONDS}
        self._heard[own] = node, now
        members = [each for each, place in self._heard.items() if place[0] == node]
        before = members.index(own) - 1
        return members[before // _CHILDREN] if before >= 0 else ""


class Relay:
    """An actor's part: gives other actors the parts that it has itself, and those that are on their way once they are there.

    ``hold`` belongs to the thread that fetches; requests are answered by another one.
    """

    def __init__(self, endpoint: str, security: ServerSecurity | None) -> None:
        self._server = Server(endpoint, security)
        self.endpoint = self._server.endpoint
        self._held: dict[Any, dict[Any, Message]] = {}
        self._newest: tuple[Scalar, ...] = ()
        self._stop = threading.Event()
        self._thread = SupervisedThread("weight-relay", self._serve, until=self._stop)
        self._thread.start()

    def expect(self, announcement: Message) -> None:
        """This version is on its way here."""
        self._newest = _version_of(announcement)

    def hold(self, part: Message) -> None:
        """Pass on a part that was verified. Those of two versions are kept."""
        self._held.setdefault(_version_of(part), {})[part.fields["index"]] = part
        if len(self._held) > _VERSIONS:
            del self._held[next(iter(self._held))]

    def close(self) -> None:
        """Stop serving."""
        self._stop.set()
        self._thread.close(timeout_seconds=5.0)

    def _serve(self) -> None:
        # For each when its client is told next that the part is still on its way.
        waiting: deque[tuple[float, bytes, Message]] = deque(maxlen=_REQUESTS)
        with self._server:
            while not self._stop.is_set():
                self._server.wait(0.02 if waiting else 0.1)
                now = time.monotonic()
                while (arrived := self._server.receive()) is not None:
                    if arrived[1].kind == "want":
                        waiting.append((now + _WORD_SECONDS, *arrived))
                    else:
                        self._server.refuse(arrived[0], MalformedMessage("kind", "a relay has parts of weights alone"))
                for _ in range(len(waiting)):
                    next_word, peer, request = waiting.popleft()
                    wanted, newest = _version_of(request), self._newest
                    held = self._held.get(wanted, {}).get(request.fields["index"])
                    if held is None and (now > next_word or wanted < newest):
                        self._server.send(peer, Message("current", {"version": newest[1] if newest else 0}, {}))
                        next_word = now + _WORD_SECONDS
                    if held is not None:
                        self._server.send(peer, held, copy=False)
                    elif wanted >= newest:
                        waiting.append((next_word, peer, request))


def _version_of(message: Message) -> tuple[Scalar, ...]:
    return tuple(message.fields[name] for name in ("epoch", "version", "averaged"))

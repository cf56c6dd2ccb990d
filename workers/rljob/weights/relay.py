"""Weights from another actor of the same node: who takes them from whom, and the actor that passes them on.

A relay is trusted with nothing: whoever gets a part from it compares it with the digest that the learner told.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from rljob.threads import SupervisedThread
from rljob.wire import MalformedMessage, Message, Scalar, Server, ServerSecurity

RELAY_SECONDS: Final = 3.0
"""A client gives up a relay that says nothing for so long."""
_GONE_SECONDS: Final = 60.0
"""While it fetches a large version over a slow link an actor tells the learner nothing. So long a lost relay has no children."""
_CHILDREN: Final = 4
_VERSIONS: Final = 2
_REQUESTS: Final = 64
_WORD_SECONDS: Final = 0.5


class RelayTree:
    """The learner's part: the actors of each node as a tree, in the order in which they came; only the first asks the learner."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[str, float]] = {}
        self._lost: dict[str, float] = {}

    def parent(self, fetch: Mapping[str, Scalar]) -> str:
        """The endpoint to take parts from, for a client that says where it gives them itself; "" is the learner's own.

        A relay that one of its own node has lost leaves the tree: the next in order takes its place, so that the node still takes
        one copy from the learner. One that was only slow comes back as the last.
        """
        node, own, lost = (str(fetch.get(name, "")) for name in ("node", "serves", "lost"))
        now = time.monotonic()
        if not own:
            return ""
        if lost != own and lost in self._heard and self._heard[lost][0] == node:
            del self._heard[lost]
            self._lost[lost] = now
        self._lost = {each: at for each, at in self._lost.items() if now - at < _GONE_SECONDS}
        self._heard = {each: place for each, place in self._heard.items() if now - place[1] < _GONE_SECONDS}
        self._heard[own] = node, now
        members = [
            each for each, place in self._heard.items() if place[0] == node and (each == own or each not in self._lost)
        ]
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
        # For each when its client is told next that the part is still on its way. One that asks again gets it once.
        waiting: dict[tuple[Any, ...], float] = {}
        with self._server:
            while not self._stop.is_set():
                self._server.wait(0.02 if waiting else 0.1)
                now = time.monotonic()
                while (arrived := self._server.receive()) is not None:
                    peer, request = arrived
                    if request.kind != "want":
                        self._server.refuse(peer, MalformedMessage("kind", "a relay has parts of weights alone"))
                        continue
                    waiting.setdefault((peer, _version_of(request), request.fields["index"]), now + _WORD_SECONDS)
                    if len(waiting) > _REQUESTS:
                        del waiting[next(iter(waiting))]
                for (peer, wanted, index), next_word in list(waiting.items()):
                    newest, held = self._newest, self._held.get(wanted, {}).get(index)
                    if held is None and (now > next_word or wanted < newest):
                        self._server.send(peer, Message("current", {"version": newest[1] if newest else 0}, {}))
                        waiting[peer, wanted, index] = now + _WORD_SECONDS
                    if held is not None:
                        self._server.send(peer, held, copy=False)
                    if held is not None or wanted < newest:
                        del waiting[peer, wanted, index]


def _version_of(message: Message) -> tuple[Scalar, ...]:
    return tuple(message.fields[name] for name in ("epoch", "version", "averaged"))

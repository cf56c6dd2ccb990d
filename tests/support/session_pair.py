"""A session and its scripted shard, driven in turn by one thread, with a clock of their own.

A replay shard reduced to its conversation: the real sockets and the real credit ledger, with faults on demand.
"""

import itertools
import uuid
from collections.abc import Callable

import numpy as np
from rljob.acting import ActorIdentity
from rljob.actor.figures import ActorFigures
from rljob.actor.session import ReplaySession
from rljob.experience import Segment, SegmentLayout, transition_layout
from rljob.observation import frames
from rljob.wire import Client, CreditCheck, CreditLedger, Message, Server

from tests.support.clock import Clock
from tests.support.experience import make_chunk
from tests.support.waiting import eventually

LAYOUT = transition_layout(3, frames((2,), np.uint8), 1)
_NUMBERS = itertools.count()


def a_chunk(number: int) -> Segment:
    """The ``number``th, as its actions say."""
    return make_chunk("actor-0", number, LAYOUT, incarnation="i1", action=np.full(LAYOUT.length, number, np.int32))


class Pair:
    """A session and its shard, driven in turn by one thread."""

    def __init__(self, window: int = 4) -> None:
        endpoint = f"inproc://session-{next(_NUMBERS)}"
        self.shard = ScriptedShard(endpoint, LAYOUT, window)
        self.clock = Clock(100.0)
        identity = ActorIdentity("actor-0", "i1", 8)
        self.session = ReplaySession(Client(endpoint), identity, ActorFigures(identity).heartbeat, clock=self.clock)

    def turn(self, times: int = 1, seconds: float = 0.0) -> None:
        for _ in range(times):
            self.session.poll()
            self.shard.serve()
            self.clock.now += seconds
        self.session.poll()

    def until(self, condition: Callable[[], bool], seconds_each: float = 0.0) -> None:
        eventually(condition, between=lambda: self.turn(1, seconds_each))

    def numbers(self) -> list[int]:
        return [int(chunk["action"][0]) for chunk in self.shard.stored]

    def close(self) -> None:
        self.session.close()
        self.shard.server.close()


class ScriptedShard:
    """Accepts chunks as the replay service does; ``grant`` limits the credits, ``restart`` forgets all sessions. Where it has a
    ``least_version``, it asks for unrolls of such weights, as a learner does in iterations."""

    def __init__(self, endpoint: str, layout: SegmentLayout, window: int = 4) -> None:
        self.server = Server(endpoint)
        self.window = window
        self.layout = layout
        self.stored: list[Segment] = []
        self.received: list[Message] = []
        self.grant = True
        self.mute = False
        self.least_version: int | None = None
        self.restart(keep_log=False)

    def restart(self, keep_log: bool) -> None:
        """A new service behind the same address; with ``keep_log`` it remembers what was stored."""
        self.service = uuid.uuid4().hex[:8]
        self.ledger = CreditLedger(self.window)
        if keep_log:
            for chunk in self.stored:
                self.ledger.restore(chunk.actor, chunk.incarnation, chunk.sequence)

    def serve(self) -> None:
        """Answer everything that has arrived."""
        while (arrived := self.server.receive()) is not None:
            peer, message = arrived
            self.received.append(message)
            if not self.mute:
                self._answer(peer, message)

    def kinds(self) -> list[str]:
        return [message.kind for message in self.received]

    def _answer(self, peer: bytes, message: Message) -> None:
        if message.kind == "hello":
            sequence = self.ledger.hello(peer, message.fields["actor"], message.fields["inc"])
            fields = {
                "service": self.service,
                "slot": 2,
                "slots": 4,
                "life": 1,
                "epoch": 9,
                "seq": sequence,
                **self._asked(peer),
            }
            fields["session"] = message.fields["session"]
            self.server.send(peer, Message("welcome", fields, {}))
        elif message.kind == "chunk":
            verdict = self.ledger.receive(peer, message.fields["seq"])
            if verdict is CreditCheck.NEW:
                self.stored.append(Segment.from_message(message, self.layout))
            if verdict in (CreditCheck.NEW, CreditCheck.DUPLICATE):
                fields = {"seq": self.ledger.accepted(peer), **self._asked(peer), "durable": True}
                self.server.send(peer, Message("ack", fields, {}))
            else:
                self.server.send(peer, Message("pulse", {"service": self.service, "known": False}, {}))
        elif message.kind in ("heartbeat", "alive"):
            self.server.send(
                peer, Message("pulse", {"service": self.service, "known": (peer in self.ledger._sessions)}, {})
            )

    def _credits(self, peer: bytes) -> int:
        credits = self.ledger.grantable(peer) if self.grant else 0
        self.ledger.granted(peer, credits)
        return credits

    def _asked(self, peer: bytes) -> dict[str, int]:
        credits = {"credits": self._credits(peer)}
        return credits if self.least_version is None else {**credits, "pv": self.least_version}

    def grant_now(self) -> None:
        """The limiter lets go: hand every peer its credits."""
        self.grant = True
        for peer in tuple(self.ledger._sessions):
            self.server.send(peer, Message("credit", self._asked(peer), {}))

"""Both ends of the credit protocol over an ordered channel that breaks: conservation, exactly once, no deadlock."""

from __future__ import annotations

from collections import deque
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from rljob.wire.credits import CreditLedger, CreditWindow, Verdict

Packet = tuple[Any, ...]


class Link(RuleBasedStateMachine):
    """An actor and a replay service, reduced to their flow control.

    Messages are tuples. A break loses everything on its way to the client; what was on its way to the server is lost or
    arrives later, from the old peer. The client is not told of a break: it learns from an answer to its next message.
    """

    @initialize(window=st.integers(1, 5))
    def start(self, window: int) -> None:
        self.window_size = window
        self.ledger = CreditLedger(window)
        self.connections = 0
        self.incarnation = 0
        self.accepting = True
        self.up: deque[Packet] = deque()
        self.down: deque[Packet] = deque()
        self.late: deque[tuple[bytes, Packet]] = deque()
        self.stored: list[tuple[int, int]] = []  # (incarnation, sequence) of this life of the server's memory
        self.ever: set[tuple[int, int]] = set()
        self.start_client()

    def start_client(self) -> None:
        self.incarnation += 1
        self.produced = 0
        self.window: CreditWindow[int] = CreditWindow()
        self.reconnect()
        self.say_hello()

    def say_hello(self) -> None:
        self.up.append(("hello", self.incarnation, self.window.hello()))

    def reconnect(self) -> None:
        self.connections += 1
        self.peer = b"peer-%d" % self.connections
        self.up.clear()
        self.down.clear()

    # the client

    @rule()
    def produce(self) -> None:
        self.window.add(self.produced, self.produced)
        self.produced += 1

    @rule()
    def send(self) -> None:
        chunk = self.window.next()
        if chunk is not None:
            assert chunk[0] == chunk[1]
            self.up.append(("chunk", chunk[0]))
            self.window.sent(chunk[0])

    @rule()
    def heartbeat(self) -> None:
        if self.window.connected:
            self.up.append(("heartbeat",))
        else:
            self.say_hello()

    @rule()
    def client_loses_patience(self) -> None:
        self.say_hello()

    @rule()
    def client_receives(self) -> None:
        if not self.down:
            return
        match self.down.popleft():
            case ("welcome", sequence, credits, session):
                self.window.welcome(sequence, credits, session)
            case ("ack", sequence, credits):
                self.window.acknowledge(sequence, credits)
            case ("unknown",) if self.window.connected:
                self.say_hello()

    # the server

    @rule(late=st.booleans(), delivered=st.booleans())
    def server_receives(self, late: bool, delivered: bool) -> None:
        if late and self.late:
            peer, packet = self.late.popleft()
        elif self.up:
            peer, packet = self.peer, self.up.popleft()
        else:
            return
        match packet:
            case ("hello", incarnation, session):
                sequence = self.ledger.hello(peer, "actor", str(incarnation))
                self.reply(peer, delivered, "welcome", sequence, session)
            case ("chunk", sequence):
                verdict = self.ledger.receive(peer, sequence)
                if verdict is Verdict.NEW:
                    self.stored.append((self.incarnation_of(peer), sequence))
                    self.ever.add(self.stored[-1])
                if verdict in (Verdict.NEW, Verdict.DUPLICATE):
                    self.reply(peer, delivered, "ack", self.ledger.accepted(peer))
                else:
                    self.answer(peer, ("unknown",))
            case ("heartbeat",):
                if self.ledger.knows(peer):
                    self.reply(peer, delivered, "ack", self.ledger.accepted(peer))
                else:
                    self.answer(peer, ("unknown",))

    def incarnation_of(self, peer: bytes) -> int:
        return int(self.ledger.stream(peer)[1])

    def reply(self, peer: bytes, delivered: bool, kind: str, sequence: int, *session: int) -> None:
        """A message with as many credits as there are to give; they count only if the socket took it."""
        credits = self.ledger.grantable(peer) if self.accepting else 0
        if delivered:
            self.ledger.granted(peer, credits)
            self.answer(peer, (kind, sequence, credits, *session))

    def answer(self, peer: bytes, packet: Packet) -> None:
        if peer == self.peer:
            self.down.append(packet)

    @rule(accepting=st.booleans())
    def limiter_turns(self, accepting: bool) -> None:
        self.accepting = accepting

    # the faults

    @rule(keep=st.integers(0, 3))
    def connection_breaks(self, keep: int) -> None:
        self.late.extend((self.peer, packet) for packet in list(self.up)[:keep])
        self.reconnect()

    @rule(durable=st.booleans())
    def server_restarts(self, durable: bool) -> None:
        self.ledger = CreditLedger(self.window_size)
        self.late.clear()
        self.reconnect()
        if durable:
            for incarnation, sequence in self.stored:
                self.ledger.restore("actor", str(incarnation), sequence)
        else:
            self.stored.clear()

    @rule(keep=st.integers(0, 3))
    def client_restarts(self, keep: int) -> None:
        self.late.extend((self.peer, packet) for packet in list(self.up)[:keep])
        self.start_client()

    # what must hold

    @invariant()
    def credits_are_conserved(self) -> None:
        hello_on_the_way = any(packet[0] == "hello" for packet in self.up)
        if not self.window.connected or not self.ledger.knows(self.peer) or hello_on_the_way:
            return
        on_the_way_up = sum(packet[0] == "chunk" for packet in self.up)
        on_the_way_down = sum(packet[2] for packet in self.down if packet[0] == "ack")
        outstanding = self.ledger.outstanding(self.peer)
        assert outstanding == self.window.credits + on_the_way_up + on_the_way_down
        assert outstanding <= self.window_size

    @invariant()
    def each_chunk_is_accepted_once_and_in_order(self) -> None:
        assert len(set(self.stored)) == len(self.stored)
        for incarnation in {incarnation for incarnation, _ in self.stored}:
            numbers = [sequence for owner, sequence in self.stored if owner == incarnation]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))

    @invariant()
    def nothing_is_let_go_that_was_not_accepted(self) -> None:
        released = self.produced - self.window.unacknowledged
        assert all((self.incarnation, sequence) in self.ever for sequence in range(released))

    def teardown(self) -> None:
        """Once the faults end, everything produced arrives within a bounded number of exchanges."""
        self.late.clear()
        self.accepting = True
        for _ in range(20 + 4 * self.produced):
            self.heartbeat()
            while self.window.next() is not None:
                self.send()
            while self.up:
                self.server_receives(late=False, delivered=True)
            while self.down:
                self.client_receives()
        assert self.window.unacknowledged == 0
        assert all((self.incarnation, sequence) in self.ever for sequence in range(self.produced))
        assert self.window.credits == self.window_size


Link.TestCase.settings = settings(max_examples=300, stateful_step_count=60)
TestLink = Link.TestCase

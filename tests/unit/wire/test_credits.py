"""Both ends of the credit protocol over an ordered channel that breaks: conservation, exactly once, no deadlock; its rules."""

from collections import deque
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from rljob.wire.credits import CreditCheck, CreditLedger, CreditWindow

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
        self.connections = self.incarnation = 0
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

    @rule()
    def say_hello(self) -> None:
        """Whenever the client loses its patience, too."""
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
    def client_receives(self) -> None:
        held = self.window.unacknowledged
        match self.down.popleft() if self.down else ():
            case ("welcome", sequence, credits, session):
                assert self.window.welcome(sequence, credits, session) == held - self.window.unacknowledged
            case ("ack", sequence, credits):
                assert self.window.acknowledge(sequence, credits) == held - self.window.unacknowledged
            case ("unknown",) if self.window.connected:
                self.say_hello()

    # the server

    @rule(late=st.booleans(), delivered=st.booleans())
    def server_receives(self, late: bool, delivered: bool) -> None:
        if not (late and self.late) and not self.up:
            return
        peer, packet = self.late.popleft() if late and self.late else (self.peer, self.up.popleft())
        match packet:
            case ("hello", incarnation, session):
                sequence = self.ledger.hello(peer, "actor", str(incarnation))
                self.reply(peer, delivered, "welcome", sequence, session)
                return
            case ("chunk", sequence):
                verdict = self.ledger.receive(peer, sequence)
                if verdict is CreditCheck.NEW:
                    self.stored.append((int(self.ledger._sessions[peer].stream[1]), sequence))
                    self.ever.add(self.stored[-1])
                known = verdict in (CreditCheck.NEW, CreditCheck.DUPLICATE)
            case ("heartbeat",):
                known = peer in self.ledger._sessions
        if known:
            self.reply(peer, delivered, "ack", self.ledger.accepted(peer))
        else:
            self.answer(peer, ("unknown",))

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

    @rule()
    def exchange(self) -> None:
        """All that can go to and fro; rules that draw each step alone hardly ever come as far as a stored chunk."""
        self.heartbeat()
        while self.window.next() is not None:
            self.send()
        while self.up:
            self.server_receives(late=False, delivered=True)
        while self.down:
            self.client_receives()

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
        if not self.window.connected or self.peer not in self.ledger._sessions or hello_on_the_way:
            return
        on_the_way_up = sum(packet[0] == "chunk" for packet in self.up)
        on_the_way_down = sum(packet[2] for packet in self.down if packet[0] == "ack")
        outstanding = self.ledger.outstanding(self.peer)
        assert outstanding == self.window.credits + on_the_way_up + on_the_way_down <= self.window_size

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
            self.exchange()
        self.nothing_is_let_go_that_was_not_accepted()
        assert (self.window.unacknowledged, self.window.credits) == (0, self.window_size)


Link.TestCase.settings = settings(max_examples=300, stateful_step_count=60)
TestLink = Link.TestCase


# The small rules of the bookkeeping.


@pytest.fixture
def window() -> CreditWindow[Any]:
    return CreditWindow()


def test_nothing_is_sent_without_a_welcome_or_a_credit(window: CreditWindow[Any]) -> None:
    window.add(5, "a")
    window.add(6, "b")
    window.grant(3)
    assert window.next() is None
    window.welcome(-1, 1)
    assert (window.next(), window.next()) == ((5, "a"), (5, "a"))
    window.sent(5)
    assert window.next() is None
    assert (window.credits, window.unsent, window.unacknowledged) == (0, 1, 2)


def test_chunks_are_numbered_without_gaps_and_only_the_next_one_can_have_been_sent(window: CreditWindow[Any]) -> None:
    window.add(0, None)
    for sequence in (-1, 0, 2):
        with pytest.raises(ValueError, match="gap"):
            window.add(sequence, None)
    with pytest.raises(ValueError, match="not the one"):
        window.sent(0)


def test_verdicts() -> None:
    ledger = CreditLedger(2)
    assert (ledger.receive(b"p", 0), ledger.hello(b"p", "actor-0", "one")) == (CreditCheck.UNKNOWN, -1)
    assert ledger.receive(b"p", 0) is CreditCheck.NO_CREDIT
    ledger.granted(b"p", 2)
    with pytest.raises(ValueError, match="window"):
        ledger.granted(b"p", 1)
    # A ledger that knows nothing takes the stream up where it is.
    assert [ledger.receive(b"p", number) for number in (7, 9, 7)] == [
        CreditCheck.NEW,
        CreditCheck.GAP,
        CreditCheck.DUPLICATE,
    ]
    assert (ledger.accepted(b"p"), ledger.outstanding(b"p"), ledger.grantable(b"p")) == (7, 0, 2)


def test_a_new_hello_ends_the_session_before_it_but_not_what_was_accepted() -> None:
    ledger = CreditLedger(2)
    ledger.hello(b"p", "actor-0", "one")
    ledger.granted(b"p", 2)
    ledger.receive(b"p", 0)
    assert (ledger.hello(b"q", "actor-0", "one"), ledger.receive(b"p", 1)) == (0, CreditCheck.UNKNOWN)
    assert tuple(ledger._sessions) == (b"q",)
    ledger.forget(b"p")
    assert b"q" in ledger._sessions
    # A late hello of the ended process does no harm.
    assert (ledger.hello(b"r", "actor-0", "two"), ledger.hello(b"s", "actor-0", "one")) == (-1, 0)
    for incarnation in range(1000):
        ledger.hello(b"t", "actor-0", str(incarnation))
    # But the bookkeeping of ended processes does not pile up.
    assert (ledger.hello(b"s", "actor-0", "one"), ledger._sessions[b"s"].stream) == (-1, ("actor-0", "one"))
    assert len(ledger._accepted) <= 8
    ledger.hello(b"u", "stranger", "one")
    ledger.forget(b"u")
    ledger.forget_actor("stranger")
    assert ("stranger" in ledger._peer_of, {actor for actor, _ in ledger._accepted}) == (False, {"actor-0"})


def test_the_welcome_of_an_earlier_hello_is_ignored(window: CreditWindow[Any]) -> None:
    window.add(0, None)
    first, second = window.hello(), window.hello()
    window.welcome(0, 5, first)
    assert (window.connected, window.credits, window.unacknowledged) == (False, 0, 1)
    window.welcome(-1, 3, second)
    assert (window.connected, window.credits, window.unacknowledged) == (True, 3, 1)

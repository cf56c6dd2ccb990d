"""Flow control by credits: a chunk may be sent only against a credit, so nothing is ever sent that there is no room for.

Pure bookkeeping for both ends of an ordered but breakable connection. The client keeps every chunk until it is
acknowledged and says hello again after a break; the server accepts each sequence number of an incarnation once, in
order. Per session: credits granted = chunks received + chunks on the way + credits on the way + credits held.
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

P = TypeVar("P")

_REMEMBERED_INCARNATIONS = 8


class CreditWindow(Generic[P]):
    """The client's side: chunks not yet acknowledged, oldest first, and the credits to send them with.

    The caller numbers the chunks (consecutively) and stops producing while `unsent` is more than it cares to hold; this
    class owns the payloads until they are acknowledged.
    """

    def __init__(self) -> None:
        self._chunks: deque[tuple[int, P]] = deque()
        self._sent = 0  # how many of `_chunks`, from the left, are on the way
        self._last = -1
        self.credits = 0
        """How many chunks may be sent now."""
        self.connected = False
        """Whether a welcome was received since the last break."""
        self._session = 0

    @property
    def unsent(self) -> int:
        return len(self._chunks) - self._sent

    @property
    def unacknowledged(self) -> int:
        """Chunks held: unsent or on the way."""
        return len(self._chunks)

    def add(self, sequence: int, payload: P) -> None:
        """Takes a chunk to be sent; raises `ValueError` unless its number follows the previous one."""
        if (self._last >= 0 and sequence != self._last + 1) or sequence < 0:
            raise ValueError(f"chunk {sequence} after chunk {self._last}: a gap would be acknowledged as if sent")
        self._last = sequence
        self._chunks.append((sequence, payload))

    def next(self) -> tuple[int, P] | None:
        """The chunk to send now; None without a welcome, a credit or an unsent chunk. Call `sent` once it is sent."""
        if not self.connected or self.credits == 0 or self._sent == len(self._chunks):
            return None
        return self._chunks[self._sent]

    def sent(self, sequence: int) -> None:
        """The chunk that `next` gave was handed to the socket: it costs one credit."""
        chunk = self.next()
        if chunk is None or chunk[0] != sequence:
            raise ValueError(f"chunk {sequence} is not the one to be sent")
        self._sent += 1
        self.credits -= 1

    def acknowledge(self, sequence: int, credits: int) -> int:
        """All chunks up to `sequence` are accepted and `credits` more may be sent; returns how many were let go."""
        released = 0
        while self._chunks and self._chunks[0][0] <= sequence:
            self._chunks.popleft()
            released += 1
        self._sent = max(0, self._sent - released)
        self.grant(credits)
        return released

    def grant(self, credits: int) -> None:
        """`credits` more chunks may be sent."""
        if self.connected:
            self.credits += credits

    def hello(self) -> int:
        """A new session is being asked for: nothing is sent until its welcome. Returns its number, which goes into the
        hello and comes back in the welcome. May be called again while no welcome comes: the hello may be lost."""
        self.disconnected()
        self._session += 1
        return self._session

    def welcome(self, sequence: int, credits: int, session: int | None = None) -> int:
        """A session begins: chunks up to `sequence` are accepted, all others unsent again, and there are exactly
        `credits` credits. Returns how many chunks were let go.

        The welcome of an earlier hello is ignored: the server has ended that session, and with it its credits.
        """
        if session is not None and session != self._session:
            return 0
        self.connected = True
        self.credits = 0
        released = self.acknowledge(sequence, credits)
        self._sent = 0
        return released

    def disconnected(self) -> None:
        """The session is over (the server does not know us, the connection broke): nothing is sent until a welcome."""
        self.connected = False
        self.credits = self._sent = 0


class CreditCheck(Enum):
    """What to do with a chunk."""

    NEW = "new"
    """Store it and acknowledge it."""
    DUPLICATE = "duplicate"
    """Already accepted: acknowledge it again, store nothing."""
    GAP = "gap"
    """A chunk before it is missing: refuse it; the peer must say hello again."""
    NO_CREDIT = "no-credit"
    """Sent without a credit: refuse it; the peer must say hello again."""
    UNKNOWN = "unknown"
    """The peer has not said hello in this life of the server: it must."""


@dataclass(slots=True)
class _Session:
    stream: tuple[str, str]
    outstanding: int = 0


class CreditLedger:
    """The server's side: who is connected, what of each (actor, incarnation) was accepted, and the credits outstanding.

    `window` is how many chunks one client may have on the way. A client is one peer at a time: a new hello of the same
    actor ends its earlier session, of whatever incarnation.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self._sessions: dict[bytes, _Session] = {}
        self._peer_of: dict[str, bytes] = {}
        self._accepted: dict[tuple[str, str], int] = {}

    def hello(self, peer: bytes, actor: str, incarnation: str) -> int:
        """Opens a session, without credits yet; returns the highest accepted number of this incarnation, -1 for none.

        A hello again of the same peer begins anew too. The last few incarnations of the actor are remembered, because a
        hello of an ended process may arrive after that of the next.
        """
        previous = self._peer_of.get(actor)
        if previous is not None:
            self.forget(previous)
        self.forget(peer)
        stream = (actor, incarnation)
        accepted = self._accepted.pop(stream, -1)
        others = [other for other in self._accepted if other[0] == actor]
        for other in others[: 1 - _REMEMBERED_INCARNATIONS]:
            del self._accepted[other]
        self._accepted[stream] = accepted
        self._sessions[peer] = _Session(stream)
        self._peer_of[actor] = peer
        return accepted

    def receive(self, peer: bytes, sequence: int) -> CreditCheck:
        """Judges a chunk; a NEW one is accepted and must be stored by the caller."""
        session = self._sessions.get(peer)
        if session is None:
            return CreditCheck.UNKNOWN
        if session.outstanding == 0:
            return CreditCheck.NO_CREDIT
        accepted = self._accepted.get(session.stream, -1)
        # A server that forgot everything takes up a stream wherever its first session begins: an ordered connection
        # delivers a prefix, so only a chunk after an accepted one can reveal a gap.
        if accepted >= 0 and sequence > accepted + 1:
            return CreditCheck.GAP
        session.outstanding -= 1
        if sequence <= accepted:
            return CreditCheck.DUPLICATE
        self._accepted[session.stream] = sequence
        return CreditCheck.NEW

    def accepted(self, peer: bytes) -> int:
        """The number to acknowledge: everything up to it was accepted; -1 for none."""
        return self._accepted.get(self._sessions[peer].stream, -1)

    def grantable(self, peer: bytes) -> int:
        """How many credits this peer could be given now."""
        return self.window - self._sessions[peer].outstanding

    def granted(self, peer: bytes, credits: int) -> None:
        """The message that carries so many credits was handed to the socket."""
        if not 0 <= credits <= self.grantable(peer):
            raise ValueError(f"{credits} credits; {self.grantable(peer)} are left of a window of {self.window}")
        self._sessions[peer].outstanding += credits

    def outstanding(self, peer: bytes) -> int:
        """Credits granted to this peer and not yet used by a chunk received."""
        return self._sessions[peer].outstanding

    def forget(self, peer: bytes) -> None:
        """Ends a session (goodbye, or the peer is gone); what it had accepted stays accepted."""
        session = self._sessions.pop(peer, None)
        if session is not None and self._peer_of.get(session.stream[0]) == peer:
            del self._peer_of[session.stream[0]]

    def forget_actor(self, actor: str) -> None:
        """Forget what was accepted of every incarnation of an actor without a session; one that comes back begins anew."""
        for stream in [stream for stream in self._accepted if stream[0] == actor]:
            del self._accepted[stream]

    def restore(self, actor: str, incarnation: str, sequence: int) -> None:
        """What a durable log says was accepted before a restart; keeps the higher number."""
        stream = (actor, incarnation)
        self._accepted[stream] = max(sequence, self._accepted.get(stream, -1))

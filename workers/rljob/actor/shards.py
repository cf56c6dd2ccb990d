"""Several replay shards as one sink."""

import time
from collections import Counter, deque
from hashlib import blake2b

import zmq

from rljob.actor.session import ReplaySession, Welcome
from rljob.experience import Segment
from rljob.wire import Message

_KEPT_EPISODE_MESSAGES = 256


class MultiShard:
    """The shards of one job as one sink: chunks go to the shards in turn, passing over those that have no credit left.

    A chunk is bound to a shard only when that shard has a credit for it, and then stays with it. So a shard that is full or
    gone keeps what it was given (at most its window of credits) and holds back nothing else: an actor waits only while no shard
    at all has a credit for it. Taking turns, rather than the most credit, is what spreads inserts evenly: shards that
    acknowledge at once have always the same credit.

    The epsilon slot comes from the first shard that has welcomed this actor. Each message of finished games goes to one shard,
    the first that is there, and is not sent again, so that no game counts twice; one that a shard takes with it is lost.

    One shard that is there is the actor's home, by a hash of both names: it alone is told everything, and lists the actor in its
    status. The others are told the steps.
    """

    def __init__(self, sessions: list[ReplaySession]) -> None:
        if not sessions:
            raise ValueError("an actor needs at least one replay shard; give --replay-ingest")
        self.sessions = sessions
        self._turn = self._unbound_transitions = self.episodes_dropped = 0
        self._unbound: deque[Segment] = deque()
        self._episodes: deque[Message] = deque(maxlen=_KEPT_EPISODE_MESSAGES)
        self._preferences = [
            blake2b(f"{number} {session.actor}".encode(), digest_size=8).digest()
            for number, session in enumerate(sessions)
        ]
        self._there: list[int] = []
        self._poller = zmq.Poller()
        for session in sessions:
            self._poller.register(session.socket, zmq.POLLIN)

    @property
    def welcome(self) -> Welcome | None:
        """The latest welcome of the first shard that has sent one, or None before any has."""
        return next((session.welcome for session in self.sessions if session.welcome is not None), None)

    @property
    def waiting(self) -> int:
        """Chunks no shard would take yet; an actor pauses its environments while there are any."""
        return len(self._unbound)

    @property
    def credits(self) -> int:
        """Chunks that may be sent now, beyond those that wait."""
        return sum(session.credits - session.waiting for session in self.sessions) - len(self._unbound)

    @property
    def least_version(self) -> int | None:
        """The oldest weights that an unroll may be played with; None where that does not matter, and none has to be asked for."""
        told = [session.least_version for session in self.sessions if session.least_version is not None]
        return max(told, default=None)

    @property
    def unacknowledged(self) -> int:
        """Chunks that no shard has acknowledged yet, the waiting ones included."""
        return self.total("unacknowledged") + len(self._unbound)

    @property
    def held_transitions(self) -> int:
        """Transitions in those chunks."""
        return self.total("held_transitions") + self._unbound_transitions

    @property
    def durable(self) -> bool:
        """Whether every shard's last acknowledgement said that the chunk is in its log."""
        return all(session.durable for session in self.sessions)

    def total(self, name: str) -> int:
        """The sum of one of ``ReplaySession``'s counts over the shards."""
        return sum(int(getattr(session, name)) for session in self.sessions)

    def refused(self) -> dict[str, int]:
        """Refusals by reason, over the shards."""
        return dict(sum((session.refused for session in self.sessions), Counter[str]()))

    def encode(self, chunk: Segment) -> None:
        """Encode ``chunk`` for the next shard that has a credit for it; it waits where none has. Its arrays stay as they are."""
        self._unbound.append(chunk)
        self._unbound_transitions += chunk.steps
        self._bind()

    def episodes(self, message: Message) -> None:
        """Send or keep an ``episodes`` message; beyond 256 kept while no shard is there the oldest is dropped and counted."""
        self.episodes_dropped += len(self._episodes) == self._episodes.maxlen
        self._episodes.append(message)

    def poll(self, timeout_seconds: float = 0.0) -> None:
        """Serve every shard once, having waited up to ``timeout_seconds`` for the first message of any of them."""
        readable = dict(self._poller.poll(round(timeout_seconds * 1000)))
        for session in self.sessions:
            if session.socket in readable:
                session.read()
        self._choose_home()
        for session in self.sessions:
            session.send_due()
        for session in self._bind():
            session.send_waiting()
        while self._episodes and any(session.send_episodes(self._episodes[0]) for session in self.sessions):
            self._episodes.popleft()

    def drain(self, timeout_seconds: float) -> bool:
        """Wait until every chunk is acknowledged; False when ``timeout_seconds`` did not suffice."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            self.poll(0.02)
            if not self.unacknowledged and not self._episodes:
                return True
            if time.monotonic() >= deadline:
                return False

    def close(self) -> None:
        """Say goodbye to every shard and let the sockets go."""
        for session in self.sessions:
            session.close()

    def _choose_home(self) -> None:
        there = [number for number, session in enumerate(self.sessions) if session.connected]
        if there != self._there:
            self._there = there
            home = max(there, key=self._preferences.__getitem__, default=0)
            for number, session in enumerate(self.sessions):
                session.is_home(number == home)

    def _bind(self) -> list[ReplaySession]:
        """Give each waiting chunk to the next shard in turn that has a credit for it; answers who was given any."""
        given = []
        while self._unbound and (session := self._next_free()) is not None:
            chunk = self._unbound.popleft()
            self._unbound_transitions -= chunk.steps
            session.encode(chunk)
            given.append(session)
        return given

    def _next_free(self) -> ReplaySession | None:
        for _ in self.sessions:
            session = self.sessions[self._turn]
            self._turn = (self._turn + 1) % len(self.sessions)
            if session.connected and session.credits > session.waiting:
                return session
        return None

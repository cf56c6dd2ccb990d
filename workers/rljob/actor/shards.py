"""Several replay shards as one sink."""

from __future__ import annotations

import time
from collections import Counter, deque

from rljob.actor.session import ReplaySession, Welcome
from rljob.experience import Chunk, Unroll
from rljob.wire import Message

_KEPT_EPISODE_MESSAGES = 256


class MultiShard:
    """The shards of one job as one sink: every chunk goes to the shard with the most credit, and stays with it.

    The epsilon slot comes from shard 0, which alone receives the episodes.
    """

    def __init__(self, sessions: list[ReplaySession]) -> None:
        if not sessions:
            raise ValueError("an actor needs at least one replay shard; give --replay-ingest")
        self.sessions = sessions
        self._episodes: deque[Message] = deque(maxlen=_KEPT_EPISODE_MESSAGES)
        self.episodes_dropped = 0

    @property
    def welcome(self) -> Welcome | None:
        """Shard 0's latest welcome, or None before the first."""
        return self.sessions[0].welcome

    @property
    def waiting(self) -> int:
        """Chunks no shard would take yet; an actor pauses its environments while there are any."""
        return self.total("waiting")

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

    def encode(self, chunk: Chunk | Unroll) -> None:
        """Encode ``chunk`` for the shard with the most free credit (the shortest line where none has any)."""
        best = max(self.sessions, key=lambda session: session.credits - session.waiting)
        best.encode(chunk)

    def episodes(self, message: Message) -> None:
        """Send or keep an ``episodes`` message; beyond 256 kept ones the oldest is dropped and counted."""
        self.episodes_dropped += len(self._episodes) == self._episodes.maxlen
        self._episodes.append(message)

    def poll(self, timeout_seconds: float = 0.0) -> None:
        """Serve every shard once. The wait, if any, is shared out between them."""
        for session in self.sessions:
            session.poll(timeout_seconds / len(self.sessions))
        while self._episodes and self.sessions[0].send_episodes(self._episodes[0]):
            self._episodes.popleft()

    def drain(self, timeout_seconds: float) -> bool:
        """Wait until every chunk is acknowledged; False when ``timeout_seconds`` did not suffice."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            self.poll(0.02)
            if not self.total("unacknowledged") and not self._episodes:
                return True
            if time.monotonic() >= deadline:
                return False

    def close(self) -> None:
        """Say goodbye to every shard and let the sockets go."""
        for session in self.sessions:
            session.close()

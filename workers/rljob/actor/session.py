"""An actor's conversation with one replay shard: who it is, what it may send, and what is not yet acknowledged.

A chunk is forgotten only when the shard has acknowledged it. Whatever happens in between (the shard restarts, a
connection drops, an answer is lost), the session says hello again, learns which sequence number the shard accepted
last, and sends the rest once more; the shard drops what it already has. So every chunk arrives exactly once.
"""

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

from rljob.acting import ActorIdentity
from rljob.actor.compression import Compression
from rljob.experience import Segment
from rljob.telemetry import timeline
from rljob.wire import Client, CreditWindow, MalformedMessage, Message, encode
from rljob.wire.transport import Socket

log = logging.getLogger(__name__)

HEARTBEAT_INTERVAL_SECONDS = 1.0
# Without a connection, try again soon; with one, give the shard time to answer (it may be warming up).
CONNECT_RETRY_SECONDS = 0.1
HELLO_RETRY_SECONDS = 2.0
# A welcome and no message since, or a chunk unanswered for so long: something was lost.
SILENCE_SECONDS = 5.0
# A shard that refuses this often without accepting anything in between will never accept what it is sent.
_HOPELESS_REFUSALS = 5


@dataclass(frozen=True, slots=True)
class Welcome:
    """What a shard granted: ``slot`` of ``slots`` on the exploration ladder, which was taken for the ``life``-th time, and the
    ``epoch`` of the learner it works for.

    Experience bears it until weights arrive, which say of which epoch they are.
    """

    slot: int
    slots: int
    life: int
    epoch: int


class ChunkRefused(RuntimeError):
    """The shard keeps refusing what it is sent: actor and shard do not agree on the job. A new start may help."""


@dataclass(frozen=True, slots=True)
class _Encoded:
    """A chunk as it goes out; kept until the shard acknowledges it."""

    transitions: int
    parts: Sequence[bytes | memoryview]


class ReplaySession:
    """One actor, one shard. Single-threaded: the actor's loop calls ``poll`` often and ``encode`` when it has a chunk.

    ``about``: columns of its hello, ``SegmentLayout.leaves_column``. Nothing here blocks. ``waiting`` counts the chunks that
    could not be sent yet, for want of credit or connection.
    The shard sees chunks numbered without gaps, in the order in which they were given to this session.
    """

    def __init__(
        self,
        client: Client,
        identity: ActorIdentity,
        heartbeat: Callable[[], Message],
        *,
        compression: Compression | None = None,
        about: Mapping[str, NDArray[Any]] = MappingProxyType({}),
        receiver: str = "replay shard",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._identity = identity
        self._heartbeat = heartbeat
        self._compression = compression or Compression()
        self._columns_of_hello = about
        self._receiver = receiver
        self._clock = clock
        self._window: CreditWindow[_Encoded] = CreditWindow()
        self._held: deque[int] = deque()  # transitions of each chunk in the window, oldest first
        self._home = True
        self._sequence = 0
        self._highest_sent = -1
        self._service = ""
        self._next_hello = self._next_heartbeat = self._heard_at = self._progress_at = clock()
        self.welcome: Welcome | None = None
        self.durable = False
        self.least_version: int | None = None
        """The oldest weights that the credits it has are for; None where that does not matter."""
        self.produced_transitions = self.acknowledged_transitions = 0
        self.chunks_sent = self.chunks_resent = self.chunks_acknowledged = 0
        self.bytes_encoded = 0
        self.refused: Counter[str] = Counter()
        self._refusals_in_a_row = 0

    @property
    def actor(self) -> str:
        return self._identity.actor

    @property
    def connected(self) -> bool:
        """Whether the shard has welcomed this actor since the last break."""
        return self._window.connected

    @property
    def socket(self) -> Socket:
        """For a poller that waits on several sessions; it is readable when ``poll`` has something to read."""
        return self._client.socket

    @property
    def credits(self) -> int:
        """Chunks the shard still allows."""
        return self._window.credits

    @property
    def waiting(self) -> int:
        """Chunks encoded and not yet sent, those to be sent again included."""
        return self._window.unsent

    @property
    def unacknowledged(self) -> int:
        """Chunks held until the shard acknowledges them, the waiting ones included."""
        return self._window.unacknowledged

    @property
    def held_transitions(self) -> int:
        """Transitions in those chunks."""
        return self.produced_transitions - self.acknowledged_transitions

    @property
    def eagain(self) -> int:
        """Sends the socket turned away: no connection, or its queue was full."""
        return self._client.eagain_total

    def encode(self, chunk: Segment) -> None:
        """Encode ``chunk`` and line it up; ``poll`` sends it as soon as the shard's credit allows."""
        if (recording := timeline.recording) is not None:
            recording.flow("s", replace(chunk, sequence=self._sequence).origin)
        message = chunk.to_message()
        numbered = Message(message.kind, {**message.fields, "seq": self._sequence}, message.columns)
        self._compression.look(message.columns)
        parts = encode(numbered, compress=self._compression.columns, deltas=self._compression.deltas)
        self._window.add(self._sequence, _Encoded(chunk.steps, parts))
        self._held.append(chunk.steps)
        self._sequence += 1
        if self.least_version is not None:  # such a receiver goes by counts, and hears of steps before it gets them
            self._next_heartbeat = 0.0
        self.produced_transitions += chunk.steps
        self.bytes_encoded += sum(map(len, parts))

    def poll(self, timeout_seconds: float = 0.0) -> None:
        """Read what has arrived, waiting up to ``timeout_seconds`` for the first message; then send what is due.

        Raises ``ChunkRefused`` when the shard refuses again and again without accepting anything.
        """
        self.read(timeout_seconds)
        self.send_due()

    def read(self, timeout_seconds: float = 0.0) -> None:
        """The first half of ``poll``."""
        while (message := self._client.receive(timeout_seconds)) is not None:
            timeout_seconds = 0.0
            self._heard_at = self._clock()
            self._handle(message)

    def send_due(self) -> None:
        """The second half of ``poll``."""
        now = self._clock()
        if not self.connected:
            if now >= self._next_hello:
                hello = self._about("hello", envs=self._identity.num_envs, session=self._window.hello())
                hello = replace(hello, columns=self._columns_of_hello)
                sent = self._client.send(hello)
                self._next_hello = now + (HELLO_RETRY_SECONDS if sent else CONNECT_RETRY_SECONDS)
            return
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + HEARTBEAT_INTERVAL_SECONDS
            self._client.send(self._sign_of_life())
        self.send_waiting()
        in_flight = self.unacknowledged > self.waiting
        if now - self._heard_at > SILENCE_SECONDS or (in_flight and now - self._progress_at > SILENCE_SECONDS):
            log.info("no answer from the %s for %.0f s, saying hello again", self._receiver, SILENCE_SECONDS)
            self._say_hello_again()

    def send_episodes(self, message: Message) -> bool:
        """Send an ``episodes`` message now; False when the shard is not there (the caller may keep it)."""
        return self.connected and self._client.send(message)

    def close(self) -> None:
        """Tell the shard that this incarnation will send nothing more, and let the socket go. May be called twice."""
        if self.connected:
            self._client.send(self._sign_of_life())  # the steps since the last one count as well
            self._client.send(self._about("goodbye"))
            self._window.disconnected()
        self._client.close()

    def is_home(self, home: bool) -> None:
        """Whether this shard is told everything, or only of the steps. A new home is told at once."""
        if home and not self._home:
            self._next_heartbeat = self._clock()
        self._home = home

    def _sign_of_life(self) -> Message:
        heartbeat = self._heartbeat()
        if self._home:
            return heartbeat
        return self._about("alive", steps=heartbeat.fields["steps"], raw=heartbeat.fields["raw"])

    def _about(self, kind: str, **fields: Any) -> Message:
        return Message(kind, {"actor": self._identity.actor, "inc": self._identity.incarnation, **fields}, {})

    def _handle(self, message: Message) -> None:
        fields = message.fields
        if "pv" in fields and message.kind in ("welcome", "ack", "credit"):
            self.least_version = int(fields["pv"])
        if message.kind == "welcome":
            asked = fields.get("session")
            session = None if asked is None else int(asked)
            self._release(self._window.welcome(int(fields["seq"]), int(fields["credits"]), session))
            if self.connected:  # else it answers an earlier hello than the last
                self._service = str(fields["service"])
                self.welcome = Welcome(*(int(fields[name]) for name in ("slot", "slots", "life", "epoch")))
        elif message.kind == "ack":
            self.durable = bool(fields["durable"])
            self._release(self._window.acknowledge(int(fields["seq"]), int(fields["credits"])))
        elif message.kind == "credit":
            self._window.grant(int(fields["credits"]))
        elif message.kind == "pulse":
            if self.connected and (not fields["known"] or fields["service"] != self._service):
                log.info("the %s no longer knows this actor, saying hello again", self._receiver)
                self._say_hello_again()
        elif message.kind == "refused":
            reason = str(fields["reason"])
            if not self.refused[reason]:
                log.warning("the %s refused a message: %s", self._receiver, reason)
            self.refused[reason] += 1
            self._refusals_in_a_row += 1
            if self._refusals_in_a_row >= _HOPELESS_REFUSALS:
                raise ChunkRefused(f"the {self._receiver} no longer accepts data from this actor: {reason}")
        else:
            self._client.count(
                MalformedMessage("kind", f"{message.kind} is nothing that a {self._receiver} tells an actor")
            )

    def _release(self, chunks: int) -> None:
        """The ``chunks`` oldest chunks are in the shard's hands."""
        for _ in range(chunks):
            self.acknowledged_transitions += self._held.popleft()
        self.chunks_acknowledged += chunks
        if chunks:
            self._progress_at = self._clock()
            self._refusals_in_a_row = 0

    def send_waiting(self) -> None:
        """Send what the shard's credit allows."""
        now = self._clock()
        while (due := self._window.next()) is not None:
            sequence, encoded = due
            if not self._client.send(encoded.parts):
                return
            if self.unacknowledged == self.waiting:
                self._progress_at = now
            self._window.sent(sequence)
            if sequence > self._highest_sent:
                self._highest_sent = sequence
                self.chunks_sent += 1
            else:
                self.chunks_resent += 1

    def _say_hello_again(self) -> None:
        self._window.disconnected()
        self._next_hello = self._heard_at = self._progress_at = self._clock()

"""An actor's conversation with one replay shard: who it is, what it may send, and what is not yet acknowledged.

A chunk is forgotten only when the shard has acknowledged it. Whatever happens in between (the shard restarts, a
connection drops, an answer is lost), the session says hello again, learns which sequence number the shard accepted
last, and sends the rest once more; the shard drops what it already has. So every chunk arrives exactly once.

Columns are compressed as they are, or as the differences of neighbouring frames, which are smaller where most of a picture stays
as it is and what stands still is rich in detail, and larger where everything moves or the picture is plain. Which it is is seen
in the first segments.
"""

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from numpy.typing import NDArray

from rljob.acting import ActorIdentity
from rljob.experience import Segment
from rljob.telemetry import timeline
from rljob.wire import CODES, Client, CreditWindow, MalformedMessage, Message, encode
from rljob.wire.column import pack_column

log = logging.getLogger(__name__)

TRIED_SEGMENTS: Final = 8
_LEAST_ROW_BYTES: Final = 64
"""A pass over smaller rows costs more than its bytes are worth."""
_WORTH_BYTES: Final = 0.95


class Compression:
    """Which of the ``columns`` that are compressed go as ``deltas``.

    ``way``: LZ4 none, Delta all, Auto those for which that was smaller by a twentieth in the first segments; what is smaller is
    packed sooner, too. For one thread; several sessions may share it.
    """

    def __init__(self, columns: Sequence[str] = (), way: str = "LZ4") -> None:
        self.columns = tuple(columns)
        self.deltas: frozenset[str] = frozenset(columns) if way == "Delta" else frozenset()
        self._left = TRIED_SEGMENTS if way == "Auto" and columns else 0
        self._bytes: dict[str, list[float]] = {}

    def look(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """See the columns of a segment that is about to be sent; only the first ones are looked at."""
        if not self._left:
            return
        self._left -= 1
        for name in self.columns:
            array = columns.get(name)
            if array is None or array.ndim < 2 or len(array) < 2 or array[0].nbytes < _LEAST_ROW_BYTES:
                continue
            for way in (0, 1):
                _, buffer = pack_column(0, CODES[array.dtype], array, compressed=True, delta=way == 1)
                self._bytes.setdefault(name, [0.0, 0.0])[way] += len(buffer)
        if self._left:
            return
        self.deltas = frozenset(name for name, (plain, delta) in self._bytes.items() if delta < _WORTH_BYTES * plain)
        for name, (plain, delta) in self._bytes.items():
            how = "differences" if name in self.deltas else "they are"
            sizes = plain / TRIED_SEGMENTS / 1e3, delta / TRIED_SEGMENTS / 1e3
            log.info("%s: %.1f kB a segment, as differences of frames %.1f: they go as %s", name, *sizes, how)


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
        self._client, self._identity, self._heartbeat = client, identity, heartbeat
        self._compression = compression or Compression()
        self._columns_of_hello, self._receiver, self._clock = about, receiver, clock
        self._window: CreditWindow[_Encoded] = CreditWindow()
        self.actor, self.socket = identity.actor, client.socket
        """A poller may wait on sockets of several sessions: one is readable when ``poll`` has something to read."""
        self._held: deque[int] = deque()  # transitions of each chunk in the window, oldest first
        self._home = True
        self._sequence = self.produced_transitions = self.acknowledged_transitions = 0
        self.chunks_sent = self.chunks_resent = self.chunks_acknowledged = self.bytes_encoded = 0
        self._refusals_in_a_row = 0
        self._highest_sent = -1
        self._service = ""
        self._next_hello = self._next_heartbeat = self._heard_at = self._progress_at = clock()
        self.welcome: Welcome | None = None
        self.durable = False
        self.least_version: int | None = None
        """The oldest weights that the credits it has are for; None where that does not matter."""
        self.refused: Counter[str] = Counter()

    @property
    def connected(self) -> bool:
        """Whether the shard has welcomed this actor since the last break."""
        return self._window.connected

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

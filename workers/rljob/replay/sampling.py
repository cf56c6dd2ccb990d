"""The learner's side of the service: subscriptions, the mirror, deferred requests, priorities."""

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rljob.replay.table import ReplayTable
from rljob.wire import Message, Scalar, Server, drawn_column, drawn_of, encode

log = logging.getLogger(__name__)

MESSAGES_A_TURN = 64
REQUESTS_PER_SUBSCRIBER = 64
MOST_DRAWS = 1 << 16
_UNREAD_SECONDS = 30.0

Parts = list[bytes | memoryview]


@dataclass(slots=True)
class _Subscriber:
    """``cursor`` is the ordinal of the next chunk to mirror; ``unsent`` batches that its socket would not take yet.

    ``requests``: (number, transitions to draw, transitions to count)."""

    incarnation: str
    cursor: int
    requests: deque[tuple[int, int, int]] = field(default_factory=deque)
    unsent: Parts | None = None
    stuck_since: float | None = None


class Sampling:
    """Serves subscribers from the table. Owned by the service's thread; nothing here blocks.

    A subscriber mirrors the table: it is sent every stored chunk, oldest first, before any batch that may refer to it. The order
    of one socket is the whole consistency argument. A batch therefore waits until the mirror has caught up.

    ``epoch`` is that of the latest learner that has subscribed. One of an earlier epoch was superseded: it is refused, and what
    it was subscribed to ends when the later one begins. ``version``: of its weights when it last asked, where it tells.
    ``played``: the steps and raw frames of all actors.
    """

    def __init__(
        self,
        server: Server,
        table: ReplayTable,
        service: str,
        shard: int,
        seed: int,
        played: Callable[[], tuple[int, int]] = lambda: (0, 0),
    ) -> None:
        self._server, self._table, self._service, self._shard = server, table, service, shard
        self._generator = np.random.default_rng(seed)
        self._played = played
        self._subscribers: dict[bytes, _Subscriber] = {}
        self.rejected: Counter[str] = Counter()
        self.epoch = self.version = self.batches_total = self.mirrored_total = 0
        self._learner = ""

    @property
    def samples_wait(self) -> bool:
        """Whether a request waits."""
        return any(subscriber.requests for subscriber in self._subscribers.values())

    @property
    def drained(self) -> bool:
        """Whether a request waits that the limiter withholds until more is inserted."""
        waiting = (subscriber.requests for subscriber in self._subscribers.values() if subscriber.requests)
        return any(not self._table.limiter.can_sample(requests[0][2]) for requests in waiting)

    @property
    def mirror_lags(self) -> bool:
        """Whether there are chunks or batches to send as soon as a subscriber's socket takes them."""
        head = self._table.head
        return any(s.unsent is not None or s.cursor < head for s in self._subscribers.values())

    def receive(self, state: str, stats: Callable[[], bytes]) -> None:
        """Handle what has arrived, some messages at a time."""
        for _ in range(MESSAGES_A_TURN):
            received = self._server.receive()
            if received is None:
                return
            self._handle(*received, state, stats)

    def serve(self, now: float, *, sampling: bool) -> None:
        """Send what is due: mirrored chunks, then as many batches as the limiter allows (none unless ``sampling``)."""
        for peer, subscriber in list(self._subscribers.items()):
            progress = self._catch_up(peer, subscriber)
            if sampling:
                progress |= self._answer(peer, subscriber)
            waits = subscriber.unsent is not None or subscriber.cursor < self._table.head
            if progress or not waits:
                subscriber.stuck_since = None
            elif subscriber.stuck_since is None:
                subscriber.stuck_since = now
            elif now - subscriber.stuck_since > _UNREAD_SECONDS:
                log.info("learner: has read nothing for %.0f s, its subscription ends", _UNREAD_SECONDS)
                del self._subscribers[peer]

    def _handle(self, peer: bytes, message: Message, state: str, stats: Callable[[], bytes]) -> None:
        fields: Any = message.fields
        if message.kind == "stats":
            document = np.frombuffer(stats(), np.uint8)
            self._server.send(peer, Message("stats", {}, {"json": document}))
        elif message.kind == "subscribe":
            if (differs := self._table.layout.other_leaves(message.columns)) is not None:
                self._refuse(peer, "leaves", differs.encode("ascii", "replace")[:200].decode())
            else:
                self._subscribe(peer, fields["inc"], fields.get("epoch", 0), state)
        elif message.kind != "sample":
            self._refuse(peer, "kind", f"{message.kind} is no message for sampling")
        elif peer not in self._subscribers:
            self._refuse(peer, "unknown", "not subscribed (any more); send subscribe first")
        elif not 0.0 <= (alpha := fields.get("alpha", self._table.selector.exponent)) <= 1.0:
            self._refuse(peer, "alpha", f"an exponent of {alpha}; it must lie between 0 and 1")
        else:
            if "rows" in message.columns:
                self._table.update_priorities(drawn_of(message.columns["rows"]))
            self._table.selector.go_by(alpha)
            self.version = fields.get("pv", self.version)
            for request, draws in enumerate(message.columns["draws"].tolist(), fields["req"]):
                self._request(peer, self._subscribers[peer], request, *draws)

    def _subscribe(self, peer: bytes, incarnation: str, epoch: int, state: str) -> None:
        if epoch < self.epoch:
            if not self.rejected["superseded"]:
                log.warning("learner: one of epoch %d is refused, it was superseded by one of %d", epoch, self.epoch)
            self._refuse(
                peer, "superseded", f"a learner of epoch {self.epoch} has begun after this one, of epoch {epoch}"
            )
            return
        if epoch > self.epoch:
            self.epoch = epoch
            self._subscribers.clear()
        if incarnation != self._learner:
            # A new process: what the one before it was waiting for must not be drawn in vain.
            self._learner = incarnation
            for other in [p for p, s in self._subscribers.items() if s.incarnation != incarnation]:
                del self._subscribers[other]
        layout = self._table.layout
        reply: dict[str, Scalar] = {
            "service": self._service,
            "epoch": self.epoch,
            "chunks": self._table.slots.capacity,
            "length": layout.length,
            "frames": layout.max_frames,
            "state": state,
        }
        if self._server.send(peer, Message("subscribed", reply, {})):
            self._subscribers[peer] = _Subscriber(incarnation, self._table.oldest)
            log.info("learner: subscribed, epoch %d", self.epoch)

    def _request(self, peer: bytes, subscriber: _Subscriber, request: int, count: int, charge: int) -> None:
        config = self._table.limiter.config
        most = 2.0 * config.error_buffer - config.insert_step * config.samples_per_insert
        if max(count, charge) > MOST_DRAWS:
            self._refuse(peer, "size", f"a batch of {max(count, charge)}, at most {MOST_DRAWS} are allowed")
        elif self._table.limiter.limits and charge > max(most, config.sample_step):
            self._refuse(peer, "size", f"a batch of {charge} exceeds errorBuffer and would never be served")
        elif len(subscriber.requests) >= REQUESTS_PER_SUBSCRIBER:
            self._refuse(peer, "requests", f"more than {REQUESTS_PER_SUBSCRIBER} requests under way")
        else:
            subscriber.requests.append((request, count, charge))

    def _refuse(self, peer: bytes, reason: str, text: str) -> None:
        self.rejected[reason] += 1
        self._server.send(peer, Message("refused", {"reason": text}, {}))

    def _catch_up(self, peer: bytes, subscriber: _Subscriber) -> bool:
        """Mirror chunks until the cursor is at the head or the socket is full. Returns whether anything was sent.

        A batch that was drawn but not taken by the socket goes first: a chunk that overtook it could overwrite, in the
        mirror, a transition that the batch names.
        """
        sent = False
        if subscriber.unsent is not None:
            if not self._server.send(peer, subscriber.unsent):
                return False
            subscriber.unsent = None
            sent = True
        before = subscriber.cursor
        subscriber.cursor = max(subscriber.cursor, self._table.oldest)
        while subscriber.cursor < self._table.head:
            stored = self._table.chunk(subscriber.cursor)
            parts = stored.raw.rekind("mirror", {"slot": stored.slot, "gen": stored.generation})
            if not self._server.send(peer, parts):
                break
            subscriber.cursor += 1
            self.mirrored_total += 1
        return sent or subscriber.cursor > before

    def _answer(self, peer: bytes, subscriber: _Subscriber) -> bool:
        """Draw for all requests that the limiter allows now, and answer them in one message."""
        table, requests, answered = self._table, subscriber.requests, list[tuple[int, int]]()
        if subscriber.unsent is not None or subscriber.cursor < table.head or not table.items:
            return False
        while requests and table.limiter.can_sample(requests[0][2]):
            request, count, charge = requests.popleft()
            table.limiter.sample(charge)
            answered.append((request, count))
        if not answered:
            return False
        drawn = table.sample([count for _, count in answered], self._generator)
        steps, raw_frames = self._played()
        fields: dict[str, Scalar] = {
            "req": answered[0][0],
            "parts": len(answered),
            "mass": table.selector.tree.total,
            "error": table.limiter.error,
            "shard": self._shard,
            "steps": steps,
            "raw": raw_frames,
        }
        parts = encode(Message("batch", fields, {"rows": drawn_column(drawn)}))
        self.batches_total += len(answered)
        if not self._server.send(peer, parts):
            subscriber.unsent = parts
        return subscriber.unsent is None


class InTurns:
    """Asks for more only once the learner has learned from all that the limiter lets it draw, and then for steps with its newest
    weights: no clock has a part in what is drawn, or in the weights behind it. Actors have credits for all of their environments,
    or none. Before learning begins they play on."""

    def __init__(self, table: ReplayTable, sampling: Sampling) -> None:
        self._limiter, self._sampling = table.limiter, sampling

    @property
    def least_version(self) -> int:
        return self._sampling.version

    def share(self, wanted: Mapping[bytes, int], outstanding: Mapping[bytes, int], turn: int) -> dict[bytes, int]:
        """As of ``Grants``."""
        filling = self._limiter.inserted < self._limiter.config.min_size
        return dict(wanted) if filling or self._sampling.drained else {}

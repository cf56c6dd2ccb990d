"""The learner's conversation with one replay shard: subscription, mirror, outstanding requests, priorities.

In index mode the service sends every chunk it stores, and batches are slot ids. Both come over one socket in one order, so
when a batch arrives, every chunk that it refers to is in the mirror, and no chunk that came later has replaced it yet.
A restarted service, a silent one, or a batch that does not fit the mirror starts the conversation anew from nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rljob.experience import Chunk, ChunkLayout
from rljob.experience.chunk import InvalidChunk
from rljob.replay.ring import ChunkRing
from rljob.wire import Client, Message

log = logging.getLogger(__name__)

SILENCE_SECONDS = 5.0
STATS_SECONDS = 1.0
SUBSCRIBE_AGAIN_SECONDS = 2.0
MAX_PENDING_PRIORITIES = 64
MESSAGES_A_TURN = 64


class LayoutMismatch(ValueError):
    """The service stores chunks of another shape than this learner's job describes."""


class ShardSession:
    """State of one conversation; owned by the prefetch thread. ``now`` is always a monotonic time in seconds.

    ``status`` is the service's latest status document (empty before the first), ``size`` the transitions it held when it
    last sent a batch. Counters: ``mirrored_chunks``, ``resubscriptions``, ``dropped_priorities``.
    """

    def __init__(
        self, index: int, connection: Client, layout: ChunkLayout, batch_size: int, mode: str, inc: str
    ) -> None:
        self.index = index
        self.connection = connection
        self.status: dict[str, Any] = {}
        self.size = 0
        self.ring: ChunkRing | None = None
        self.subscribed = False
        self.outstanding: set[int] = set()
        self.mirrored_chunks = 0
        self.resubscriptions = 0
        self.dropped_priorities = 0
        self._layout, self._batch_size, self._mode, self._inc = layout, batch_size, mode, inc
        self._service = ""
        self._request = 0
        self._heard = 0.0
        self._next_subscribe = 0.0
        self._next_stats = 0.0
        self._pending: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = []

    def tick(self, now: float) -> None:
        """Send what is due: a subscription, a question for statistics, priorities that could not be sent before."""
        if self.subscribed and now - self._heard > SILENCE_SECONDS:
            self._start_over(f"it has been silent for {now - self._heard:.0f} s", now)
        if not self.subscribed and now >= self._next_subscribe:
            self.connection.send(Message("subscribe", {"mode": self._mode, "inc": self._inc}, {}))
            self._next_subscribe = now + SUBSCRIBE_AGAIN_SECONDS
        if now >= self._next_stats and self.connection.send(Message("stats", {}, {})):
            self._next_stats = now + STATS_SECONDS
        self._flush_priorities()

    def ask(self) -> bool:
        """Request one more batch; False when it could not be sent. The service answers when its limiter lets it."""
        self._request += 1
        if not self.connection.send(Message("sample", {"req": self._request, "n": self._batch_size}, {})):
            return False
        self.outstanding.add(self._request)
        return True

    def priorities(self, slots: NDArray[Any], generations: NDArray[Any], priority: NDArray[Any]) -> None:
        """Pass on new priorities; kept and merged while the socket is full, dropped (counted) when that lasts."""
        self._pending.append((slots, generations, priority))
        if len(self._pending) > MAX_PENDING_PRIORITIES:
            self.dropped_priorities += len(self._pending.pop(0)[0])
        self._flush_priorities()

    def receive(self, now: float) -> Iterator[Message]:
        """The batches that have arrived, each to be gathered before the next is asked for (the order is the consistency).

        Raises LayoutMismatch when the service's chunks are of another shape.
        """
        for _ in range(MESSAGES_A_TURN):
            message = self.connection.receive(0.0)
            if message is None:
                return
            self._heard = now
            if message.kind == "subscribed":
                self._begin(message)
            elif message.kind == "stats":
                self._learn_status(message, now)
            elif message.kind == "refused":
                self._start_over(f"it refused: {message.fields['reason']}", now)
                self._next_subscribe = now + SUBSCRIBE_AGAIN_SECONDS  # nothing has changed since: no storm of refusals
            elif not self.subscribed:
                continue  # what was under way for a subscription that we gave up
            elif message.kind == "mirror":
                self._mirror(message, now)
            elif message.kind == "batch" and self._accept(message, now):
                yield message

    def _begin(self, message: Message) -> None:
        fields, layout = message.fields, self._layout
        if (fields["length"], fields["frames"]) != (layout.length, layout.max_frames):
            raise LayoutMismatch(
                f"replay shard {self.index} stores chunks of {fields['length']} steps in {fields['frames']} frames, this "
                f"job's are of {layout.length} in {layout.max_frames}; start both from the same manifest"
            )
        self._service = str(fields["service"])
        self.outstanding.clear()
        self._pending.clear()
        self.subscribed = True
        self.ring = ChunkRing(layout, int(fields["chunks"]), keep_frames=True) if self._mode == "index" else None

    def _mirror(self, message: Message, now: float) -> None:
        assert self.ring is not None
        try:
            chunk = Chunk.from_message(message, self._layout)
            self.ring.insert_at(int(message.fields["slot"]), int(message.fields["gen"]), chunk)
            self.mirrored_chunks += 1
        except (InvalidChunk, IndexError, ValueError) as error:
            self._start_over(f"its chunk does not fit the mirror: {error}", now)

    def _accept(self, message: Message, now: float) -> bool:
        request = int(message.fields["req"])
        if request not in self.outstanding:
            return False
        self.outstanding.discard(request)
        columns = message.columns
        if len(columns["slot"]) != self._batch_size:
            self._start_over(f"it sent {len(columns['slot'])} transitions for a batch of {self._batch_size}", now)
            return False
        if self.ring is not None and not self.ring.matches(columns["slot"], columns["gen"]).all():
            self._start_over("a batch named transitions that the mirror does not hold", now)
            return False
        self.size = int(message.fields["size"])
        return True

    def _learn_status(self, message: Message, now: float) -> None:
        if "json" not in message.columns:
            return
        try:
            status = json.loads(message.columns["json"].tobytes())
        except ValueError:
            log.warning("replay shard %d sent a status that is not JSON", self.index)
            return
        self.status = status
        if self.subscribed and status.get("service", self._service) != self._service:
            self._start_over("it was restarted", now)

    def _start_over(self, why: str, now: float) -> None:
        log.info("replay shard %d: %s; subscribing again", self.index, why)
        self.resubscriptions += 1
        self.subscribed = False
        self.outstanding.clear()
        self._pending.clear()
        self.ring = None
        self._heard = now
        self._next_subscribe = now

    def _flush_priorities(self) -> None:
        if not self._pending or not self.subscribed:
            return
        if len(self._pending) > 1:
            self._pending = [tuple(np.concatenate(column) for column in zip(*self._pending, strict=True))]  # type: ignore[list-item]
        slots, generations, priority = self._pending[0]
        if self.connection.send(Message("priorities", {}, {"slot": slots, "gen": generations, "prio": priority})):
            self._pending.clear()

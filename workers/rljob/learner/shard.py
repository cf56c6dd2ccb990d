"""The learner's conversation with one replay shard: subscription, mirror, outstanding requests, priorities.

The service sends every chunk it stores, and batches are slot ids. Both come over one socket in one order, so
when a batch arrives, every chunk that it refers to is in the mirror, and no chunk that came later has replaced it yet.
A restarted service, a silent one, or a batch that does not fit the mirror starts the conversation anew from nothing.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rljob.experience import Segment, SegmentLayout, SegmentRing
from rljob.ingest.shard_status import ShardStatus
from rljob.learner.shard_totals import ShardReport
from rljob.telemetry import timeline
from rljob.wire import Client, MalformedMessage, Message, Scalar, drawn_column, drawn_of

log = logging.getLogger(__name__)

QUIET_SECONDS = 1.0
"""A shard that has left a request unanswered for so long is not asked for batches until it answers again."""
SILENCE_SECONDS = 5.0
"""After so long the conversation begins anew."""
STATS_SECONDS = 1.0
FILLING_STATS_SECONDS = 0.2
"""Between two requests to a shard that does not serve yet: its experience is wanted as soon as it does."""
SUBSCRIBE_AGAIN_SECONDS = 2.0
OWING_SECONDS = 10.0
"""A shard that could draw, and answers all but requests for so long, is started over, and left alone for longer each time."""
LONGEST_ALONE_SECONDS = 60.0
PRIORITIES_SECONDS = 0.05
"""New priorities wait for so long, at most, for a request to leave with."""
MAX_PENDING_PRIORITIES = 64
MOST_REQUESTS = 64
"""That a shard may owe answers to, which is as many as it keeps: rows of several lost shards are many small requests."""
MESSAGES_A_TURN = 64
_LARGEST = 1e100


class LayoutMismatch(ValueError):
    """The service stores chunks of another shape than this learner's job describes."""


class ShardSession:
    """State of one conversation; owned by the prefetch thread. ``now`` is always a monotonic time in seconds.

    ``epoch`` is the learner's, ``exponent`` the one by which draws are to be made. ``status`` is the service's latest status
    (None before the first), ``mass`` the sum of its transitions' p^alpha when it was last heard of, 0 before.
    ``new_ring`` makes an empty mirror of a table with so many chunks; None: in this process's memory.
    """

    def __init__(
        self,
        index: int,
        connection: Client,
        layout: SegmentLayout,
        inc: str,
        new_ring: Callable[[int], SegmentRing] | None = None,
        exponent: float = 0.6,
        version: Callable[[], int] | None = None,
    ) -> None:
        self.index, self.exponent, self._version, self.connection = index, exponent, version, connection
        self._layout, self._inc = layout, inc
        self.played = 0, 0
        self.epoch = self.resubscriptions = self._request = self._mirrored = 0
        self.status: ShardStatus | None = None
        self.mass = self._error = self._heard_at = self._next_subscribe = self._next_stats = 0.0
        self._asked_at = 0.0
        self.ring: SegmentRing | None = None
        self.subscribed = self._serving = self._unreachable = False
        self.outstanding: dict[int, tuple[int, int]] = {}  # transitions asked for and what they cost, by request
        self._new_ring = new_ring or partial(SegmentRing, layout)
        self._service = ""
        self._unanswered_since: float | None = None
        self._owing_since: float | None = None
        self._alone_seconds = SUBSCRIBE_AGAIN_SECONDS
        self._report = ShardReport()
        self._pending: list[NDArray[Any]] = []
        self._unused: dict[int, str] = {}

    def tick(self, now: float) -> None:
        """Send what is due: a subscription, a question for statistics, priorities that could not be sent before."""
        if self.subscribed and self._silent_seconds(now) > SILENCE_SECONDS:
            self._start_over(f"it has been silent for {self._silent_seconds(now):.0f} s", now)
        if self._owing_since is not None and now - self._owing_since > OWING_SECONDS:
            log.warning(
                "replay shard %d answers, but has sent no batch for %.0f s; the others are drawn from",
                self.index,
                now - self._owing_since,
            )
            self._start_over("it owes batches", now)
            self._next_subscribe = now + self._alone_seconds
            self._alone_seconds = min(2 * self._alone_seconds, LONGEST_ALONE_SECONDS)
        if not self.subscribed and now >= self._next_subscribe:
            # One that had no connection to leave by was never sent: it is tried again in the next turn.
            subscribe = Message("subscribe", {"inc": self._inc, "epoch": self.epoch}, self._layout.leaves_column)
            if self.connection.send(subscribe):
                self._next_subscribe = now + SUBSCRIBE_AGAIN_SECONDS
        if now >= self._next_stats:
            self._unreachable = not self.connection.send(Message("stats", {}, {}))
            if self._unanswered_since is None:
                self._unanswered_since = now
            if not self._unreachable:
                self._next_stats = now + (STATS_SECONDS if self._serving else FILLING_STATS_SECONDS)
        if self._pending and self.subscribed and now - self._asked_at > PRIORITIES_SECONDS:
            self.ask((), now)

    @property
    def error(self) -> float:
        """By how many samples its inserts are ahead of its ratio, once it has answered all that it was asked."""
        return self._error - sum(charge for _, charge in self.outstanding.values())

    def quiet(self, now: float) -> bool:
        """Whether it can not be reached now, or has left a question unanswered; it may be dead."""
        return self._unreachable or self._silent_seconds(now) > QUIET_SECONDS

    def report(self, now: float) -> ShardStatus | None:
        """Its status as the sums over all shards take it: without figures of the moment where it is gone, which is when it can't
        be reached, or was silent for ``SILENCE_SECONDS``. None before the first. From any thread."""
        return self._report.status(now, gone=self._unreachable or now - self._heard_at > SILENCE_SECONDS)

    def can_be_asked(self, now: float) -> bool:
        """Whether batches may be drawn from it: it serves, holds something and answers."""
        return self.subscribed and self._serving and self.mass > 0.0 and not self.quiet(now)

    def ask(self, draws: Sequence[tuple[int, int]], now: float) -> int | None:
        """Request batches, each of so many transitions that its limiter counts as so many; new priorities leave with the request,
        to be drawn by. Returns the number of the first request, None when it could not be sent. The service answers each when its
        limiter lets it, in this order.
        """
        first, columns = self._request + 1, {"draws": np.array(draws, np.uint32).reshape(-1, 2)}
        if self._pending:
            self._pending = [np.concatenate(self._pending)]
            columns["rows"] = self._pending[0]
        fields: dict[str, Scalar] = {"req": first, "alpha": self.exponent}
        if self._version is not None:
            fields["pv"] = self._version()
        if not self.connection.send(Message("sample", fields, columns)):
            self._unreachable = True
            return None
        self._pending.clear()
        self._asked_at, self._request = now, self._request + len(draws)
        self.outstanding.update(zip(range(first, first + len(draws)), draws, strict=True))
        return first

    def priorities(self, drawn: NDArray[Any]) -> None:
        """Pass on new priorities with the next request, or soon without one; dropped when the socket stays full."""
        self._pending.append(drawn_column(drawn))
        if len(self._pending) > MAX_PENDING_PRIORITIES:
            self._pending.pop(0)

    def receive(self, now: float) -> Iterator[tuple[int, NDArray[Any]]]:
        """The answers that have arrived: a request's number and its ``DRAWN`` transitions, to be gathered before the next answer
        is taken (the order is the consistency).

        Raises LayoutMismatch when the service's chunks are of another shape.
        """
        for _ in range(MESSAGES_A_TURN):
            message = self.connection.receive(0.0)
            if message is None:
                return
            self._unanswered_since, self._unreachable, self._heard_at = None, False, now
            if message.kind == "subscribed":
                self._begin(message, now)
                self._next_stats = now
            elif message.kind == "stats":
                self._learn_status(message, now)
            elif message.kind == "refused":
                self._start_over(f"it refused: {message.fields['reason']}", now)
                self._next_subscribe = now + SUBSCRIBE_AGAIN_SECONDS  # nothing has changed since: not at once
            elif not self.subscribed:
                continue  # what was under way for a subscription that we gave up
            elif message.kind == "mirror" and self.ring is not None:
                self._mirror(self.ring, message, now)
            elif message.kind == "batch":
                yield from self._accept(message, now)
            else:
                self.connection.count(
                    MalformedMessage("kind", f"{message.kind} is nothing that a shard tells a learner")
                )

    def _begin(self, message: Message, now: float) -> None:
        fields, layout = message.fields, self._layout
        if (fields["length"], fields["frames"]) != (layout.length, layout.max_frames):
            raise LayoutMismatch(
                f"replay shard {self.index} stores chunks of {fields['length']} steps in {fields['frames']} frames, this "
                f"job's are of {layout.length} in {layout.max_frames}; start both from the same manifest"
            )
        try:
            ring = self._new_ring(int(fields["chunks"]))
        except (ValueError, MemoryError) as error:
            self._start_over(f"its table can't be mirrored: {error}", now)
            self._next_subscribe = now + SUBSCRIBE_AGAIN_SECONDS
            return
        self._service = str(fields["service"])
        self.outstanding.clear()
        self._pending.clear()
        self.subscribed, self._serving, self.mass, self._mirrored = True, False, 0.0, 0
        self.ring = ring

    def _mirror(self, ring: SegmentRing, message: Message, now: float) -> None:
        began = time.perf_counter_ns()
        try:
            chunk = Segment.from_message(message, self._layout)
            ring.insert(int(message.fields["slot"]), int(message.fields["gen"]), chunk)
            self._mirrored += 1
            if (recording := timeline.recording) is not None:
                recording.flow("t", chunk.origin, "mirror", began)
                self._unused[int(message.fields["slot"])] = chunk.origin
            else:
                self._unused.clear()
        except (IndexError, ValueError) as error:
            self._start_over(f"its chunk does not fit the mirror: {error}", now)

    def first_used(self, slots: NDArray[Any]) -> list[str]:
        """While the process is profiled: the segments behind these slot ids that have come since and were not drawn before."""
        if not self._unused:
            return []
        drawn = np.unique(slots // self._layout.length).tolist()
        return [self._unused.pop(slot) for slot in drawn if slot in self._unused]

    def _accept(self, message: Message, now: float) -> list[tuple[int, NDArray[Any]]]:
        fields, drawn = message.fields, drawn_of(message.columns["rows"])
        answered = list(self.outstanding.items())[: int(fields["parts"])]
        ends = list(accumulate(count for _, (count, _) in answered))
        if len(answered) != fields["parts"] or not answered or answered[0][0] != fields["req"]:
            problem = (
                f"it answered {fields['parts']} requests from {fields['req']} on, it was asked {list(self.outstanding)}"
            )
        elif len(drawn) != ends[-1]:
            problem = f"it sent {len(drawn)} transitions where {ends[-1]} were asked for"
        elif not ((drawn["value"] > 0) & (drawn["value"] < np.inf)).all():
            problem = "a batch holds what no table could have drawn"
        elif self.ring is None or not self.ring.matches(drawn["slot"], drawn["gen"]).all():
            problem = "a batch named transitions that the mirror does not hold"
        else:
            self._weigh(fields["mass"], fields["error"])
            self.played = int(fields.get("steps", 0)), int(fields.get("raw", 0))
            self._owing_since, self._alone_seconds = None, SUBSCRIBE_AGAIN_SECONDS
            for request, _ in answered:
                del self.outstanding[request]
            return [
                (request, drawn[end - count : end]) for (request, (count, _)), end in zip(answered, ends, strict=True)
            ]
        self._start_over(problem, now)
        return []

    def _learn_status(self, message: Message, now: float) -> None:
        if "json" not in message.columns:
            return
        try:
            status = ShardStatus.from_json(message.columns["json"].tobytes())
        except ValueError as error:
            log.warning("replay shard %d sent a status that can't be read: %s", self.index, error)
            self.connection.count(MalformedMessage("contents", str(error)))
            return
        self.status = status
        self._report.heard(status, now)
        if self.subscribed and status.service not in ("", self._service):
            self._start_over("it was restarted", now)
        elif self.subscribed:
            self._serving = status.state == "serving"
            self._weigh(status.priority_total, status.limiter.error if status.limiter is not None else None)
            # One that waits for inserts owes nothing, nor does one that fills the mirror still.
            waits = status.limiter is None or status.limiter.blocked == "samples" or self._mirrored < status.chunks
            if waits or not self.outstanding:
                self._owing_since = None
            elif self._owing_since is None:
                self._owing_since = now

    def _weigh(self, mass: Any, error: Any) -> None:
        self.mass = mass if isinstance(mass, float) and 0.0 < mass < _LARGEST else 0.0
        self._error = error if isinstance(error, float) and abs(error) < _LARGEST else 0.0

    def _start_over(self, why: str, now: float) -> None:
        log.info("replay shard %d: %s; subscribing again", self.index, why)
        self.resubscriptions += 1
        self.subscribed = False
        self.outstanding.clear()
        self._pending.clear()
        self.ring = None
        self._serving, self.mass = False, 0.0
        self._unanswered_since = self._owing_since = None
        self._next_subscribe = now

    def _silent_seconds(self, now: float) -> float:
        return 0.0 if self._unanswered_since is None else now - self._unanswered_since

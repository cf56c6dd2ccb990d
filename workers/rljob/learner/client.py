"""The learner's side of replay: one thread that keeps a few batches ready, so that the training loop never waits for a socket.

The thread owns the sockets of all shards, their mirrors and the filling of staging buffers. The loop takes batches, gives
buffers back and hands over priorities; none of that blocks. Prioritized batches age, so no more are asked for or ready than
``in_flight`` says. A message costs more than its rows: of many shards several batches are asked for at once.
"""

import time
import uuid
from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import zmq
from numpy.typing import NDArray

from rljob.api.job import RLJobSpec
from rljob.experience import SegmentLayout
from rljob.ingest.shard_status import ShardStatus
from rljob.learner.assembly import Assembly, Part, ReadyBatch, Requests
from rljob.learner.batch_thread import BatchThread
from rljob.learner.device_mirror import DeviceMirror, MirrorStagingRing
from rljob.learner.shard import ShardSession
from rljob.learner.shard_totals import ShardView, actors, replay_summary, standstill
from rljob.learner.staging import BufferRing, transition_buffers
from rljob.wire import Client, ClientSecurity

POLL_MILLISECONDS = 100
_COPYING_MILLISECONDS = 1


SHARDS_A_BATCH = 2
MOST_TOGETHER = 8


def together(shards: int) -> int:
    """How many batches are asked for at once: so many that each costs a request and an answer of about two shards."""
    return min(MOST_TOGETHER, -(-shards // SHARDS_A_BATCH))


def in_flight(prefetch: int, shards: int) -> int:
    """How many batches are asked for or ready at most: ``prefetch``, or those asked for together and one before them."""
    return max(prefetch, together(shards) + min(max(prefetch, 1), 2) - 1)


@dataclass(frozen=True, slots=True)
class ReplayClientConfig:
    """``endpoints``: one "sample" endpoint a shard. ``prefetch``: batches asked for ahead of use, over all shards.
    ``exponent``, ``importance``: alpha and beta of prioritised draws; with an alpha of 0 draws are uniform."""

    endpoints: tuple[str, ...]
    layout: SegmentLayout
    batch_size: int
    prefetch: int = 2
    exponent: float = 0.6
    importance: float = 0.4
    seed: int = 0
    """Of how many of a batch each shard draws."""
    epoch: int = 0
    """Epoch of the learner; a shard that has heard of a later one refuses it."""
    version: Callable[[], int] = lambda: 0
    """Of the weights published last; without prefetch shards are told it."""

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise ValueError("a learner needs the sample endpoint of at least one replay shard; it would wait forever")


class ReplayClient(BatchThread[ReadyBatch]):
    """Ready batches, each drawn from all shards as from one table, in the order they became ready.

    ``weights(probability, beta)`` is the algorithm's importance weighting. ``mirror``: where frames are mirrored;
    None: in this process's memory. Methods are for the training loop's thread.
    What ends the prefetch thread is raised by the next call of ``next``, as ``ThreadEnded``.
    ``next`` alone wakes it, once a batch: it takes the interpreter's lock each time, and what it is handed can wait for so long.
    """

    needs_weights_first = False

    def __init__(
        self,
        config: ReplayClientConfig,
        weights: Callable[[NDArray[np.floating[Any]], float], NDArray[np.float32]],
        device: torch.device,
        security: ClientSecurity | None = None,
        mirror: DeviceMirror | None = None,
    ) -> None:
        super().__init__("replay-client")
        self._config, self._weights, self._importance = config, weights, config.importance
        incarnation = uuid.uuid4().hex
        self._sessions = [
            ShardSession(
                index,
                Client(endpoint, security),
                config.layout,
                incarnation,
                partial(mirror.ring, index) if mirror is not None else None,
                config.exponent,
                None if config.prefetch else config.version,
            )
            for index, endpoint in enumerate(config.endpoints)
        ]
        self.published(config.epoch)
        self._together, self._in_flight = (
            together(len(config.endpoints)),
            in_flight(config.prefetch, len(config.endpoints)),
        )
        # Beside those asked for or ready: one that the loop computes from, one whose copy may not have finished. Without prefetch
        # none: so the next is asked for once the loop has learned from the last.
        buffers = self._in_flight + (2 if config.prefetch else 0)
        self._staging: BufferRing[Any] = (
            transition_buffers(config.layout, config.batch_size, buffers, device)
            if mirror is None
            else MirrorStagingRing(mirror, config.batch_size, buffers)
        )
        self._assemblies: list[Assembly] = []
        self._requests = Requests()
        self._draws = np.random.default_rng(config.seed)
        self._copying = False
        self._ready_at = time.monotonic()
        self._learned: deque[tuple[tuple[Part, ...], NDArray[Any]]] = deque()
        self._batches_learned = 0
        self._thread.start()

    def next(self, timeout_seconds: float) -> ReadyBatch | None:
        """The oldest ready batch, or None after ``timeout_seconds`` without one. Give its buffer back after the update."""
        if not self._ready:
            self._waker.wake()  # for the buffers and priorities that have been handed over since
        batch = self._taken(timeout_seconds)
        if batch is not None:
            self._ready_at = time.monotonic()
            self._waker.wake()
        return batch

    def give_back(self, batch: ReadyBatch) -> None:
        """The loop has learned from this batch; its buffer may be filled again."""
        self._batches_learned += 1
        self.pass_over(batch)

    def pass_over(self, batch: ReadyBatch) -> None:
        """The loop has only read this batch, and does not learn from it."""
        self._staging.give_back(batch.staging)

    def published(self, epoch: int) -> None:
        """The learner is in this epoch now. Experience of earlier weights, and of earlier epochs, stays good."""
        for session in self._sessions:
            session.epoch = epoch

    def follow(self, spec: RLJobSpec) -> None:
        """Have transitions drawn, and weigh those that are, from now on as the job says."""
        prioritization = spec.required_replay.prioritization
        self._importance = prioritization.importance
        for session in self._sessions:
            session.exponent = prioritization.exponent

    def weight_beside(self, least: float, least_of_all: float) -> float:
        """How large the largest weight of a batch with this least chance is beside that of another: 1 where both are one."""
        return float(self._weights(np.array([least, least_of_all]), self._importance)[0])

    @property
    def heard_epoch(self) -> int:
        """The latest epoch of a learner that a shard has heard of."""
        return max((s.status.epoch for s in self._sessions if s.status is not None), default=0)

    def section(self) -> dict[str, Any]:
        """What this source adds to the learner's status: the replay, and a sentence where both sides stand still."""
        now = time.monotonic()
        waited_seconds = 0.0 if self._ready else now - self._ready_at
        views = [ShardView(s.index, s.subscribed, s.quiet(now), s.status) for s in self._sessions]
        acting = actors([view.status for view in views if view.status is not None and not view.quiet])
        return {"replay": replay_summary(self.statuses()), "standstill": standstill(waited_seconds, views, acting)}

    @property
    def counted(self) -> None:
        """The shards count steps, and keep their count in their logs."""

    @property
    def produced(self) -> float:
        """Transitions inserted by all actors."""
        return float(sum(shard.inserted_total for shard in self.statuses()))

    @property
    def consumed(self) -> float:
        """Transitions learned from, each as often as it was drawn."""
        return float(self._batches_learned * self._config.batch_size)

    def learned(self, batch: ReadyBatch, priority: NDArray[np.float32]) -> None:
        """Send new priorities (float32[B]) of a batch, where draws go by them. Those that are not finite are left out: the old
        ones stay."""
        if self._sessions[0].exponent == 0.0:
            return
        drawn = batch.drawn.copy()
        drawn["value"] = priority
        self._learned.append((batch.parts, drawn))

    @property
    def resubscriptions(self) -> int:
        return sum(session.resubscriptions for session in self._sessions)

    def statuses(self) -> list[ShardStatus]:
        """The latest status of each shard that has sent one, at most about a second old while it lives; of one that is
        gone, what remains true. Totals never fall."""
        now = time.monotonic()
        return [report for session in self._sessions if (report := session.report(now)) is not None]

    def _run(self) -> None:
        poller = zmq.Poller()
        for session in self._sessions:
            poller.register(session.connection.socket, zmq.POLLIN)
        poller.register(self._waker.fileno(), zmq.POLLIN)
        readable: Container[Any] = ()
        try:
            while not self._stop.is_set():
                self._turn(time.monotonic(), readable)
                readable = dict(poller.poll(_COPYING_MILLISECONDS if self._copying else POLL_MILLISECONDS))
                self._waker.clear()
        finally:
            for session in self._sessions:
                session.connection.close()

    def _turn(self, now: float, readable: Container[Any]) -> None:
        """One round over all shards; those with ``readable`` sockets have sent something."""
        while self._learned:
            parts, drawn = self._learned.popleft()
            finite = np.isfinite(drawn["value"])
            every = finite.all()
            for part in parts:
                session = self._sessions[part.shard]
                # An empty shard uses the same slots for other transitions.
                if session.resubscriptions == part.subscription:
                    rows = drawn[part.rows]
                    session.priorities(rows if every else rows[finite[part.rows]])
        for session in self._sessions:
            if session.connection.socket in readable:
                for request, drawn in session.receive(now):
                    self._take(session, request, drawn)
            session.tick(now)
        self._ask(now)

    def _ask(self, now: float) -> None:
        """Begin batches up to ``in_flight``, ``together`` at once, and ask for every row that no shard is about to send."""
        askable = [session for session in self._sessions if session.can_be_asked(now)]
        # A quiet shard may still answer; where no other could, waiting is better than drawing twice.
        given_up = {session.index for session in self._sessions if askable and session.quiet(now)}
        self._requests.recover(self._sessions, given_up)
        self._copying = False
        if not askable:
            return
        room = self._in_flight - len(self._assemblies) - len(self._ready)
        for _ in range(room if room >= self._together else 0):
            staging = self._staging.take()
            if staging is None:
                self._copying = self._staging.available() > 0  # nothing tells when a copy to the device has finished
                break
            self._assemblies.append(Assembly(staging, self._config.batch_size))
        self._requests.ask(self._assemblies, askable, self._draws, now)

    def _take(self, session: ShardSession, request: int, drawn: NDArray[Any]) -> None:
        """Fill a part of a batch in, at once: the next chunk of this shard may replace what it names in the mirror."""
        assembly = self._requests.take(session, request, drawn)
        if assembly is not None and assembly.complete:
            self._assemblies.remove(assembly)
            self._finish(assembly)

    def _finish(self, assembly: Assembly) -> None:
        staging = assembly.staging
        staging.arrays["weight"][:] = self._weights(assembly.drawn["value"], self._importance)
        batch, ready = self._staging.upload(staging)
        self._hand_over(
            ReadyBatch(
                batch=batch,
                parts=tuple(assembly.parts),
                drawn=assembly.drawn,
                policy_version=staging.arrays["policy_version"].copy(),
                staging=staging,
                ready=ready,
                origins=assembly.origins,
                least=float(assembly.drawn["value"].min()),
                played=max(session.played for session in self._sessions),
            )
        )

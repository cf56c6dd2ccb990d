"""Unrolls from actors to batches: the learner's first-in-first-out queue, served by one thread.

Actors speak to it as to a replay shard. Its bound is a budget for staleness: what waits here ages with every update. Unrolls
whose weights are too old (`lag_limit`) and those acted with weights of an earlier life of the learner are dropped and counted.
"""

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import zmq

from rljob.api.job import RLJobSpec
from rljob.api.learner_status import QueueSummary
from rljob.experience import Segment, SegmentLayout
from rljob.ingest.roster import Counted, Roster
from rljob.ingest.service import Ingest
from rljob.ingest.shard_status import ShardStatus
from rljob.ingest.table import NoLog, SlotLeases, read_segment
from rljob.learner.batch_thread import BatchThread, Ready
from rljob.learner.staging import unroll_buffers
from rljob.learner.unroll_order import FifoTable, Iterations, LagLimit
from rljob.telemetry import timeline
from rljob.weights.flat import VersionLog
from rljob.wire import RawMessage, Server, ServerSecurity

_POLL_MILLISECONDS = 50
_STATUS_SECONDS = 0.25
_HOUSEKEEPING_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class UnrollQueueConfig:
    """``endpoint`` to bind for actors; ``batch_size`` and ``capacity`` in unrolls; ``prefetch`` batches are assembled ahead of
    use; ``slots`` actors are expected; ``credits`` unrolls may be on the way from each."""

    endpoint: str
    layout: SegmentLayout
    batch_size: int
    capacity: int = 0
    drops_oldest: bool = False
    max_lag_updates: int = 50
    lag_limit_adapts: bool = False
    """Whether the measured time that weights travel is added to it."""
    iteration_lag: int | None = None
    """Where batches are iterations (``rljob.learner.unroll_order``): how many versions their unrolls may be old. The bounds
    above then do not matter."""
    prefetch: int = 1
    slots: int = 1
    credits: int = 4
    actor_timeout_seconds: float = 15.0
    epoch: int = 1
    """Epoch of the learner."""
    serves: Callable[[str], bool] = lambda actor: True
    """Whether unrolls are asked of this actor; those of others belong to another process of the learner."""
    resumed_from: Counted | None = None
    """The counts, by actor, of the checkpoint that this life of the learner goes on from; None in the first life."""

    def __post_init__(self) -> None:
        if self.iteration_lag is not None:
            # More than may come beside a batch: what was asked of actors in each other's place.
            object.__setattr__(self, "capacity", 2 * self.batch_size + self.slots * self.credits)
        if self.capacity < self.batch_size:
            raise ValueError(
                f"queue capacity is {self.capacity} unrolls, less than a batch of {self.batch_size}: no batch would ever be "
                "complete"
            )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReadyUnrolls(Ready):
    """A batch of unrolls; ``epoch``: of which life of the learner."""

    epoch: int

    def newest_frames(self) -> Any:
        """The newest frame of every observation but the last of each unroll, which the next unroll shows again: [B * T, *F*]. Of
        observations of one column."""
        return self.wait().observation[:, :-1, -1].flatten(0, 1)


class UnrollQueue(BatchThread[ReadyUnrolls]):
    """Ready batches of unrolls, oldest first. Methods are for the training loop's thread, but for ``statuses``.

    Conservation: ``received = learned + dropped(reason) + in flight``, where in flight is waiting, assembled or being learned.
    What ends the thread is raised by the next call of ``next``, as ``ThreadEnded``.
    """

    needs_weights_first = True
    resubscriptions = 0

    def __init__(
        self,
        config: UnrollQueueConfig,
        versions: VersionLog,
        device: torch.device,
        security: ServerSecurity | None = None,
    ) -> None:
        super().__init__("unroll-queue")
        self._config, self._versions = config, versions
        self._epoch = config.epoch
        self._published = self._awaited = False
        self.heard_epoch = 0
        """The latest epoch that an actor has weights of."""
        self._server = Server(config.endpoint, security, high_water_mark=max(64, 4 * config.credits))
        self.endpoint = self._server.endpoint
        self._table = FifoTable(config.layout, config.capacity, drops_oldest=config.drops_oldest)
        # In iterations nothing is there to fill but the batch that is learned from and the one behind it.
        self._bound = config.capacity if config.iteration_lag is None else 2 * config.batch_size
        self._limit = LagLimit(config.max_lag_updates, adapts=config.lag_limit_adapts)
        self._iterations: Iterations | None = None
        if config.iteration_lag is not None:
            self._iterations = Iterations(
                config.iteration_lag, config.batch_size, lambda: versions.version, self._asked_for_and_here
            )
        self._roster = Roster()
        self._ingest = Ingest(
            self._server,
            self._table,
            NoLog(self._table),
            self._roster,
            SlotLeases(config.slots),
            uuid.uuid4().hex,
            config.credits,
            lambda: self._epoch,
            config.actor_timeout_seconds,
            self._read,
            self._iterations,
            config.serves,
        )
        if config.resumed_from is not None:  # actors that outlived the learner report again what was counted then
            self._roster.resume(config.resumed_from)
        # beside those ready: one that the loop computes from, one whose copy may not have finished
        self._staging = unroll_buffers(config.layout, config.batch_size, config.prefetch + 2, device)
        self._learned = self._passed_over = self._outdated = 0
        self._status = ShardStatus()
        self._queue_status = QueueSummary()
        self._given_up = ""
        self._counted = Counted()
        self._publish(time.monotonic())
        self._thread.start()

    def next(self, timeout_seconds: float) -> ReadyUnrolls | None:
        """The oldest ready batch, or None after ``timeout_seconds`` without one. Give its buffer back after its last update."""
        self._awaited = True
        batch = self._taken(timeout_seconds)
        self._waker.wake()
        if batch is not None and self._published and batch.epoch != self._epoch:
            self._outdated += self._config.batch_size
            self._staging.give_back(batch.staging)
            return None
        return batch

    def give_back(self, batch: ReadyUnrolls) -> None:
        """The loop has learned from this batch; its buffer may be filled again."""
        self._learned += self._config.batch_size
        self._staging.give_back(batch.staging)
        self._waker.wake()

    def pass_over(self, batch: ReadyUnrolls) -> None:
        """The loop has only read this batch, and does not learn from it."""
        self._passed_over += self._config.batch_size
        self._staging.give_back(batch.staging)
        self._waker.wake()

    def learned(self, batch: ReadyUnrolls, priorities: Any) -> None:
        """Nothing is sent back: an unroll is learned from once."""

    def published(self, epoch: int) -> None:
        """The loop has published a version in ``epoch``: what was acted in an earlier one is given up. Before the first version
        actors have none of this epoch, and what they send is good for measuring the input."""
        if self._iterations is not None and epoch != self._epoch:
            self._iterations.begin_anew()
        self._epoch, self._published = epoch, True
        self._waker.wake()

    def follow(self, spec: RLJobSpec) -> None:
        """Nothing of the queue is live."""

    def statuses(self) -> list[ShardStatus]:
        """The queue's own status, at most a quarter of a second old, in the form of a replay shard's."""
        return [self._status]

    def section(self) -> dict[str, Any]:
        """What the queue adds to the learner's status. All counts are unrolls."""
        return {
            "queue": self._queue_status,
            "lag_limit_updates": self._limit.updates,
            "given_up": self._given_up,
            "rejected_total": dict(self._status.rejected_total),
        }

    @property
    def counted(self) -> dict[str, Any]:
        """What a checkpoint keeps so that a later life counts every step once: ``Counted`` as JSON values."""
        return self._counted.document()

    @property
    def produced(self) -> float:
        """Unrolls received from all actors in this life of the learner."""
        return float(self._table.accepted)

    @property
    def consumed(self) -> float:
        """Unrolls learned from in this life."""
        return float(self._learned)

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._server.socket, zmq.POLLIN)
        poller.register(self._waker.fileno(), zmq.POLLIN)
        next_status = next_housekeeping = 0.0
        busy = False
        try:
            while not self._stop.is_set():
                poller.poll(0 if busy else _POLL_MILLISECONDS)
                self._waker.clear()
                now = time.monotonic()
                head = self._table.head
                busy = self._ingest.receive(now) > 0
                newest = self._table.unrolls[-1] if self._table.head > head else None
                # In a life of its own, or without weights, it has no age.
                if newest is not None and newest.epoch == self._epoch and newest.policy_version:
                    self._limit.arrived(self._versions.age(newest.policy_version))
                busy |= self._assemble()
                self._ingest.reply()
                if now >= next_status:
                    next_status = now + _STATUS_SECONDS
                    self._publish(now)
                if now >= next_housekeeping:
                    next_housekeeping = now + _HOUSEKEEPING_SECONDS
                    self._ingest.expire(now)
        finally:
            self._publish(time.monotonic())
            self._server.close()

    def _asked_for_and_here(self) -> int:
        """Unrolls for the next batch. Before the first weights none is asked for until the loop waits for one, and has read all
        before: how many are played at random is for the loop to say, and not for how long it takes."""
        if self._versions.version:
            return len(self._table)
        return len(self._table) + (self._table.taken - self._passed_over if self._awaited else self._config.batch_size)

    def _assemble(self) -> bool:
        """Make the oldest unrolls that may still be learned from a batch, if one is wanted; True when that was done."""
        size = self._config.batch_size
        if len(self._ready) >= self._config.prefetch or len(self._table) < size:
            return False
        least = None if self._iterations is None else self._iterations.least_version
        most = self._limit.updates
        self._table.discard(lambda unroll: self._refusal(unroll, most, least))
        if len(self._table) < size or (staging := self._staging.take()) is None:
            return False
        epoch = self._epoch if self._published else 0
        if self._iterations is not None:
            self._iterations.assembled()
        began, unrolls, recording = time.perf_counter_ns(), self._table.take(size), timeline.recording
        staging.fill(unrolls)
        batch, ready = self._staging.upload(staging)
        origins: Sequence[str] = ()
        if recording is not None:
            origins = [unroll.origin for unroll in unrolls]
            recording.span("assemble", began, time.perf_counter_ns())
        played = self._roster.steps_total, self._roster.raw_frames_total
        self._hand_over(
            ReadyUnrolls(
                batch=batch,
                policy_version=staging.arrays["policy_version"],
                staging=staging,
                ready=ready,
                origins=origins,
                played=played,
                epoch=epoch,
            )
        )
        return True

    def _read(self, raw: RawMessage) -> Segment:
        unroll = read_segment(raw, self._config.layout)
        self.heard_epoch = max(self.heard_epoch, unroll.epoch)
        return unroll

    def _refusal(self, unroll: Segment, most_updates: int, least_version: int | None) -> str | None:
        """Why this unroll may not be learned from any more, if so."""
        if unroll.epoch != self._epoch and self._published:
            return "epoch"
        if least_version is not None:
            return "stale" if unroll.policy_version < least_version else None
        return "stale" if self._versions.age(unroll.policy_version) > most_updates else None

    def _publish(self, now: float) -> None:
        config, table, ingest = self._config, self._table, self._ingest
        self._counted = self._roster.counted()
        dropped = dict(table.dropped)
        for reason, count in (("centring", self._passed_over), ("epoch", self._outdated)):
            if count:
                dropped[reason] = dropped.get(reason, 0) + count
        received, learned, waiting = table.accepted, self._learned, len(table)
        in_flight = received - learned - sum(dropped.values())
        depth = waiting if self._iterations is None else in_flight
        head = table.unrolls[0].policy_version if table.unrolls else None
        self._limit.count(table.dropped["stale"], table.taken, now)
        rejected = dict(ingest.rejected)
        rejected |= {f"malformed_{reason}": count for reason, count in self._server.malformed.items()}
        length = config.layout.length
        self._given_up = self._limit.in_words()
        self._queue_status = QueueSummary(
            received=received,
            learned=learned,
            dropped=dropped,
            waiting=waiting,
            in_flight=in_flight,
            capacity=self._bound,
            head_age_updates=None if head is None else self._versions.age(head),
            arrival_age_updates=self._limit.arrival_age_updates,
            duplicates=ingest.duplicates_total,
            produced=sum(record.status.produced for record in self._roster.actors.values()) // length,
        )
        self._status = ShardStatus(
            state="serving",
            queue_depth_batches=depth / config.batch_size,
            queue_bound_batches=self._bound / config.batch_size,
            rejected_total=rejected,
            steps_total=self._roster.steps_total,
            raw_frames_total=self._roster.raw_frames_total,
            actors=self._roster.statuses(now),
            episodes=tuple(self._roster.episodes),
            episodes_total=self._roster.episodes_total,
        )

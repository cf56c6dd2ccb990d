"""The status of a replay shard, and of the learner's queue of unrolls in its place: one type for all readers.

``to_document`` gives the JSON object that ``stats`` and ``/status`` answer, ``from_json`` reads it.
"""

from dataclasses import dataclass, field, replace
from typing import Annotated, Self

from pydantic import Field

from rljob.api.learner_status import ActorStatus as ActorStatus
from rljob.api.status_document import Document, Flag, Mass, Number, Numbers, Object, Plain, Whole, json_document


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode(Document):
    """A game that an actor has finished, as it is told to one shard."""

    id: Whole = 0
    """Games that the shard had heard of with this one."""
    game_return: Annotated[Number, Field(alias="return")]
    """The sum of its rewards as the environment gave them."""
    length: Whole = 0
    """In agent steps."""
    raw_frames: Whole = 0
    epsilon: Number = 0.0
    """Share of actions drawn at random, 0 to 1."""
    truncated: Flag = False
    """Whether it was cut off, not played to its end."""
    policy_version: Whole = 0
    """Version of the weights that it ended with."""
    greedy_half: Flag = False
    """Whether it was played in the greedier half of the ladder of epsilons, which returns are told of."""
    actor: Plain = ""
    time: Number = 0.0
    """Unix seconds at which the shard heard of it."""
    shard: Whole = 0
    metrics: Numbers = field(default_factory=dict)
    """What the environment itself reports of it, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimiterStatus(Document):
    """The samples-per-insert limiter. ``error``: samples by which inserting is ahead of the ratio, which may go as far as
    ``buffer`` either way; ``blocked``: the side that would have to wait now, ``samples``, ``inserts`` or ``none``."""

    error: Mass | None = None
    buffer: Mass | None = None
    blocked: Plain = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisStatus(Document):
    """The shard's log; ``docs/replay-durability.md`` has its states."""

    state: Plain = ""
    reason: Plain = ""
    """Why it does not hold everything; empty where it does."""
    reachable: Flag = False
    lag_chunks: Whole = 0
    """Chunks accepted and not yet known to be in the log."""
    latency_seconds: Number = 0.0
    """Latency of the last write."""
    failures_total: Whole = 0
    used_memory_bytes: Whole | None = None
    """By Redis's own account; None before it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStatus(Document):
    """The whole status of a shard at one moment. The fields are in the order of the document.

    A queue of unrolls fills in what it has: its state, depth and bound, refusals, steps, frames, actors and games.
    """

    service: Plain = ""
    """Identifies one life of the service; each life has a table of its own."""
    shard: Whole = 0
    state: Plain = ""
    """warming, filling or serving; empty for one that is gone."""
    epoch: Whole = 0
    """Epoch of the latest learner that it has heard of."""
    items: Whole = 0
    """Transitions that can be sampled now."""
    chunks: Whole = 0
    capacity: Whole = 0
    """Transitions that fit."""
    nbytes: Annotated[Whole, Field(alias="bytes")] = 0
    """Memory that the stored experience takes."""
    capacity_bytes: Whole = 0
    """Memory that it may take; 0: no limit."""
    fill: Number = 0.0
    """How full it is, 0 to 1: by steps, bytes or places for chunks, whichever is nearest to its limit."""
    durable: Flag = False
    """Whether everything that was acknowledged is in the log."""
    durability: Plain = ""
    """``On`` where a log is kept, else ``Off``."""
    inserted_total: Whole = 0
    """Transitions inserted over the whole run, in this shard."""
    sampled_total: Whole = 0
    """Transitions drawn from this shard, each as often as it was."""
    chunks_total: Whole = 0
    """Chunks accepted in this life of the service."""
    batches_total: Whole = 0
    mirrored_chunks_total: Whole = 0
    """Chunks sent to learners that keep a mirror."""
    accepted: Object = field(default_factory=dict)
    """By actor: the ``incarnation`` it was last accepted from, and that one's ``transitions``. Not looked into when read."""
    duplicates_total: Whole = 0
    """Chunks that had been accepted before."""
    lost_before_total: Whole = 0
    """Chunks that were acknowledged and lost with Redis."""
    forgotten_actors_total: Whole = 0
    """Names that were given up because there were too many."""
    rejected_total: Object = field(default_factory=dict)
    """Messages refused, by reason. Not looked into when read."""
    refused_handshakes_total: Whole = 0
    """Connections turned away by the process because of their key."""
    stale_priority_updates_total: Whole = 0
    """New priorities for experience that had been overwritten."""
    invalid_priority_updates_total: Whole = 0
    samples_per_insert: Number = 0.0
    """Sampled by inserted, over the whole run."""
    limiter: LimiterStatus | None = None
    queue_depth_batches: Number | None = None
    """Batches that the learner may still draw before inserts must catch up; None where nothing limits it."""
    queue_bound_batches: Number | None = None
    """The most that depth can be."""
    insert_blocked_seconds: Number = 0.0
    """Time that actors waited because of the limiter."""
    sample_blocked_seconds: Number = 0.0
    """Time that the learner waited because of the limiter."""
    priority_total: Mass = 0.0
    """The sum of all transitions' priority^alpha."""
    priority_drift: Number = 0.0
    """Relative rounding error of that sum."""
    eagain: Whole = 0
    """Sends that a full socket turned away."""
    steps_total: Whole = 0
    """Agent steps of all actors over the whole run: every shard counts all of them."""
    raw_frames_total: Whole = 0
    """Emulator frames, counted likewise."""
    actors: tuple[ActorStatus, ...] = ()
    """The actors that have their home here, and act or have until a short while ago."""
    episodes: tuple[Episode, ...] = ()
    """The newest games that this shard was told of, oldest first."""
    episodes_total: Whole = 0
    """Games that this shard was told of over the whole run."""
    stages: Numbers = field(default_factory=dict)
    """Seconds spent in each stage of the service's loop."""
    process: Numbers = field(default_factory=dict)
    """What the service's process takes: CPU, memory, open files, bytes in sockets."""
    redis: RedisStatus = RedisStatus()

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Read what came over the wire. Raises ValueError as ``from_document``."""
        return cls.from_document(json_document(text))

    def gone(self, silent_seconds: float) -> Self:
        """What remains true of a shard that was heard of for the last time so long ago: its totals, its games, and its actors as
        they were then. Figures of the moment (what it holds, its depth and bound, its limiter) no longer hold."""
        return replace(
            self,
            state="",
            items=0,
            chunks=0,
            capacity=0,
            nbytes=0,
            capacity_bytes=0,
            fill=0.0,
            limiter=None,
            queue_depth_batches=None,
            queue_bound_batches=None,
            actors=tuple(replace(actor, age_seconds=actor.age_seconds + silent_seconds) for actor in self.actors),
        )

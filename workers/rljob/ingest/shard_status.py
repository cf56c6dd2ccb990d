"""The status of a replay shard, and of the learner's queue of unrolls in its place: one type for all readers.

``to_document`` gives the JSON object that ``stats`` and ``/status`` answer, ``from_json`` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from rljob.api.learner_status import ActorStatus as ActorStatus
from rljob.api.status_document import (
    Document,
    flag,
    json_document,
    json_object,
    mass,
    number,
    numbers,
    plain,
    plain_rows,
    rows,
    text,
    whole,
    wire,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode(Document):
    """A game that an actor has finished, as it is told to one shard."""

    id: int = wire(whole, default=0)
    """Games that the shard had heard of with this one."""
    game_return: float = wire(number, key="return")
    """The sum of its rewards as the environment gave them."""
    length: int = wire(whole, default=0)
    """In agent steps."""
    raw_frames: int = wire(whole, default=0)
    epsilon: float = wire(number, default=0.0)
    """Share of actions drawn at random, 0 to 1."""
    truncated: bool = wire(flag, default=False)
    """Whether it was cut off, not played to its end."""
    policy_version: int = wire(whole, default=0)
    """Version of the weights that it ended with."""
    greedy_half: bool = wire(flag, default=False)
    """Whether it was played in the greedier half of the ladder of epsilons, which returns are told of."""
    actor: str = wire(text, default="")
    time: float = wire(number, default=0.0)
    """Unix seconds at which the shard heard of it."""
    shard: int = wire(whole, default=0)
    metrics: Mapping[str, float] = wire(numbers, default=dict, write=dict)
    """What the environment itself reports of it, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimiterStatus(Document):
    """The samples-per-insert limiter. ``error``: samples by which inserting is ahead of the ratio, which may go as far as
    ``buffer`` either way; ``blocked``: the side that would have to wait now, ``samples``, ``inserts`` or ``none``."""

    error: float | None = wire(mass, default=None)
    buffer: float | None = wire(mass, default=None)
    blocked: str = wire(text, default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisStatus(Document):
    """The shard's log; ``docs/replay-durability.md`` has its states."""

    state: str = wire(text, default="")
    reason: str = wire(text, default="")
    """Why it does not hold everything; empty where it does."""
    reachable: bool = wire(flag, default=False)
    lag_chunks: int = wire(whole, default=0)
    """Chunks accepted and not yet known to be in the log."""
    latency_seconds: float = wire(number, default=0.0)
    """Latency of the last write."""
    failures_total: int = wire(whole, default=0)
    used_memory_bytes: int | None = wire(whole, default=None)
    """By Redis's own account; None before it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStatus(Document):
    """The whole status of a shard at one moment. The fields are in the order of the document.

    A queue of unrolls fills in what it has: its state, depth and bound, refusals, steps, frames, actors and games.
    """

    service: str = wire(text, default="")
    """Identifies one life of the service; each life has a table of its own."""
    shard: int = wire(whole, default=0)
    state: str = wire(text, default="")
    """warming, filling or serving; empty for one that is gone."""
    epoch: int = wire(whole, default=0)
    """Epoch of the latest learner that it has heard of."""
    items: int = wire(whole, default=0)
    """Transitions that can be sampled now."""
    chunks: int = wire(whole, default=0)
    capacity: int = wire(whole, default=0)
    """Transitions that fit."""
    nbytes: int = wire(whole, key="bytes", default=0)
    """Memory that the stored experience takes."""
    capacity_bytes: int = wire(whole, default=0)
    """Memory that it may take; 0: no limit."""
    fill: float = wire(number, default=0.0)
    """How full it is, 0 to 1: by steps, bytes or places for chunks, whichever is nearest to its limit."""
    durable: bool = wire(flag, default=False)
    """Whether everything that was acknowledged is in the log."""
    durability: str = wire(text, default="")
    """``On`` where a log is kept, else ``Off``."""
    inserted_total: int = wire(whole, default=0)
    """Transitions inserted over the whole run, in this shard."""
    sampled_total: int = wire(whole, default=0)
    """Transitions drawn from this shard, each as often as it was."""
    chunks_total: int = wire(whole, default=0)
    """Chunks accepted in this life of the service."""
    batches_total: int = wire(whole, default=0)
    mirrored_chunks_total: int = wire(whole, default=0)
    """Chunks sent to learners that keep a mirror."""
    accepted: Mapping[str, Mapping[str, Any]] = wire(json_object, default=dict, write=dict)
    """By actor: the ``incarnation`` it was last accepted from, and that one's ``transitions``. Not looked into when read."""
    duplicates_total: int = wire(whole, default=0)
    """Chunks that had been accepted before."""
    lost_before_total: int = wire(whole, default=0)
    """Chunks that were acknowledged and lost with Redis."""
    forgotten_actors_total: int = wire(whole, default=0)
    """Names that were given up because there were too many."""
    rejected_total: Mapping[str, int] = wire(json_object, default=dict, write=dict)
    """Messages refused, by reason. Not looked into when read."""
    refused_handshakes_total: int = wire(whole, default=0)
    """Connections turned away by the process because of their key."""
    stale_priority_updates_total: int = wire(whole, default=0)
    """New priorities for experience that had been overwritten."""
    invalid_priority_updates_total: int = wire(whole, default=0)
    samples_per_insert: float = wire(number, default=0.0)
    """Sampled by inserted, over the whole run."""
    limiter: LimiterStatus | None = wire(LimiterStatus.from_document, default=None, write=plain)  # noqa: RUF009 - a field
    queue_depth_batches: float | None = wire(number, default=None)
    """Batches that the learner may still draw before inserts must catch up; None where nothing limits it."""
    queue_bound_batches: float | None = wire(number, default=None)
    """The most that depth can be."""
    insert_blocked_seconds: float = wire(number, default=0.0)
    """Time that actors waited because of the limiter."""
    sample_blocked_seconds: float = wire(number, default=0.0)
    """Time that the learner waited because of the limiter."""
    priority_total: float = wire(mass, default=0.0)
    """The sum of all transitions' priority^alpha."""
    priority_drift: float = wire(number, default=0.0)
    """Relative rounding error of that sum."""
    eagain: int = wire(whole, default=0)
    """Sends that a full socket turned away."""
    steps_total: int = wire(whole, default=0)
    """Agent steps of all actors over the whole run: every shard counts all of them."""
    raw_frames_total: int = wire(whole, default=0)
    """Emulator frames, counted likewise."""
    actors: tuple[ActorStatus, ...] = wire(rows(ActorStatus), default=(), write=plain_rows)
    """All actors that act, or have until a short while ago."""
    episodes: tuple[Episode, ...] = wire(rows(Episode), default=(), write=plain_rows)
    """The newest games that this shard was told of, oldest first."""
    episodes_total: int = wire(whole, default=0)
    """Games that this shard was told of over the whole run."""
    stages: Mapping[str, float] = wire(numbers, default=dict, write=dict)
    """Seconds spent in each stage of the service's loop."""
    process: Mapping[str, float] = wire(numbers, default=dict, write=dict)
    """What the service's process takes: CPU, memory, open files, bytes in sockets."""
    redis: RedisStatus = wire(RedisStatus.from_document, default=RedisStatus(), write=plain)  # noqa: RUF009 - a field

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

"""The status of a shard, composed of its parts."""

import math
from collections import Counter
from collections.abc import Sequence

from rljob.ingest.roster import Roster
from rljob.ingest.service import Ingest
from rljob.ingest.shard_status import LimiterStatus, RedisStatus, ShardStatus
from rljob.replay.config import ReplayConfig
from rljob.replay.durability import Durability
from rljob.replay.limiter import SamplesPerInsertLimiter
from rljob.replay.sampling import Sampling
from rljob.replay.table import ReplayTable
from rljob.telemetry.clock import StageClock
from rljob.telemetry.process import PROCESS
from rljob.wire import Server, refused_handshakes_total


class StatusClock:
    """How long each side has waited for the other because of the limiter."""

    def __init__(self) -> None:
        self.insert_blocked_seconds = self.sample_blocked_seconds = 0.0
        self._last: float | None = None

    def observe(self, now: float, limiter: SamplesPerInsertLimiter, inserts_wait: bool, samples_wait: bool) -> None:
        """Add the time since the last call to the side that is held back now and has something to do."""
        elapsed = 0.0 if self._last is None else now - self._last
        self._last = now
        blocked = limiter.blocked
        if blocked == "inserts" and inserts_wait:
            self.insert_blocked_seconds += elapsed
        elif blocked == "samples" and samples_wait:
            self.sample_blocked_seconds += elapsed


def describe(
    *,
    service: str,
    config: ReplayConfig,
    table: ReplayTable,
    ingest: Ingest,
    sampling: Sampling,
    durability: Durability,
    roster: Roster,
    servers: Sequence[Server],
    clock: StageClock,
    blocked: StatusClock,
    state: str,
    priority_drift: float,
    now: float,
) -> ShardStatus:
    """The status of a service at ``now`` (monotonic seconds), from its own thread. ``service``: the name of this life
    of it; ``priority_drift``: as it was last measured."""
    limiter = table.limiter
    batch = config.limiter.sample_step
    rejected = Counter(ingest.rejected)
    rejected.update(sampling.rejected)
    for server in servers:
        rejected.update({f"malformed_{reason}": count for reason, count in server.malformed.items()})
    credit = limiter.sample_credit
    inserted = limiter.inserted
    return ShardStatus(
        service=service,
        shard=config.shard,
        state=state,
        epoch=sampling.epoch,
        items=table.items,
        chunks=len(table),
        capacity=config.capacity.steps,
        nbytes=table.nbytes,
        capacity_bytes=config.capacity.nbytes,
        fill=table.fill,
        durable=durability.durable,
        durability="Off" if config.redis is None else "On",
        inserted_total=inserted,
        sampled_total=limiter.sampled,
        chunks_total=ingest.chunks_total,
        batches_total=sampling.batches_total,
        mirrored_chunks_total=sampling.mirrored_total,
        accepted={
            actor: {"incarnation": accepted.incarnation, "transitions": accepted.transitions}
            for actor, accepted in ingest.accepted.by_actor.items()
        },
        duplicates_total=ingest.duplicates_total,
        lost_before_total=ingest.lost_before_total,
        forgotten_actors_total=ingest.accepted.forgotten_total,
        rejected_total=rejected,
        refused_handshakes_total=refused_handshakes_total(),
        stale_priority_updates_total=table.stale_priorities,
        invalid_priority_updates_total=table.invalid_priorities,
        samples_per_insert=limiter.sampled / inserted if inserted else 0.0,
        limiter=LimiterStatus(error=limiter.error, buffer=config.limiter.error_buffer, blocked=limiter.blocked),
        # Without a ratio nothing limits the learner: there is no depth, and no bound to compare it with.
        queue_depth_batches=credit / batch if math.isfinite(credit) else None,
        queue_bound_batches=2.0 * config.limiter.error_buffer / batch if limiter.limits else None,
        insert_blocked_seconds=blocked.insert_blocked_seconds,
        sample_blocked_seconds=blocked.sample_blocked_seconds,
        priority_total=table.selector.tree.total,
        priority_drift=priority_drift,
        eagain=sum(server.eagain_total for server in servers),
        steps_total=roster.steps_total,
        raw_frames_total=roster.raw_frames_total,
        actors=roster.statuses(now),
        episodes=tuple(roster.episodes),
        episodes_total=roster.episodes_total,
        stages=clock.seconds(),
        process=PROCESS.now(),
        redis=RedisStatus(
            state=durability.state,
            reason=durability.reason,
            reachable=durability.reachable,
            lag_chunks=durability.lag_chunks,
            latency_seconds=durability.latency_seconds,
            failures_total=durability.failures_total,
            used_memory_bytes=durability.used_memory_bytes,
        ),
    )

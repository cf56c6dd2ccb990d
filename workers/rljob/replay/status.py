"""The status document of a shard: what ``stats`` and ``/status`` answer."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from rljob.replay.limiter import SamplesPerInsertLimiter
from rljob.wire import refused_handshakes_total

if TYPE_CHECKING:
    from rljob.replay.service import ReplayService


class StatusClock:
    """How long each side has waited for the other because of the limiter."""

    def __init__(self) -> None:
        self.insert_blocked_seconds = 0.0
        self.sample_blocked_seconds = 0.0
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


def describe(service: ReplayService, now: float, blocked: StatusClock) -> dict[str, Any]:
    """The whole document, from the service's own thread. Everything in it is a plain JSON value."""
    config, table, limiter = service.config, service.table, service.table.limiter
    ingest, durability = service.ingest, service.durability
    batch = config.limiter.sample_step
    rejected = Counter(ingest.rejected)
    rejected.update(service.sampling.rejected)
    for server in (service.ingest_server, service.sample_server):
        rejected.update({f"malformed_{reason}": count for reason, count in server.malformed.items()})
    credit = limiter.sample_credit
    inserted = limiter.inserted
    return {
        "service": service.service,
        "shard": config.shard,
        "state": service.state,
        "epoch": service.sampling.epoch,
        "items": table.items,
        "chunks": len(table),
        "capacity": config.capacity.steps,
        "bytes": table.nbytes,
        "capacity_bytes": config.capacity.nbytes,
        "fill": table.items / config.capacity.steps,
        "durable": durability.durable,
        "durability": "Off" if config.redis is None else "On",
        "inserted_total": inserted,
        "sampled_total": limiter.sampled,
        "chunks_total": ingest.chunks_total,
        "batches_total": service.sampling.batches_total,
        "mirrored_chunks_total": service.sampling.mirrored_total,
        "accepted": {
            actor: {"incarnation": accepted.incarnation, "transitions": accepted.transitions}
            for actor, accepted in ingest.seen.items()
        },
        "duplicates_total": ingest.duplicates_total,
        "lost_before_total": ingest.lost_before_total,
        "forgotten_actors_total": ingest.forgotten_actors_total,
        "rejected_total": dict(rejected),
        "refused_handshakes_total": refused_handshakes_total(),
        "stale_priority_updates_total": table.stale_priorities,
        "invalid_priority_updates_total": table.invalid_priorities,
        "samples_per_insert": limiter.sampled / inserted if inserted else 0.0,
        "limiter": {
            "error": limiter.error,
            "buffer": config.limiter.error_buffer,
            "blocked": limiter.blocked,
        },
        # Without a ratio nothing limits the learner: there is no depth, and no bound to compare it with.
        "queue_depth_batches": credit / batch if math.isfinite(credit) else None,
        "queue_bound_batches": 2.0 * config.limiter.error_buffer / batch if limiter.limits else None,
        "insert_blocked_seconds": blocked.insert_blocked_seconds,
        "sample_blocked_seconds": blocked.sample_blocked_seconds,
        "priority_total": table.selector.priority_total,
        "priority_drift": service.priority_drift,
        "eagain": service.ingest_server.eagain_total + service.sample_server.eagain_total,
        "steps_total": service.roster.steps_total,
        "raw_frames_total": service.roster.raw_frames_total,
        "actors": [record.as_status(now) for record in service.roster.actors.values()],
        "episodes": list(service.roster.episodes),
        "episodes_total": service.roster.episodes_total,
        "stages": service.clock.seconds(),
        "redis": {
            "state": durability.state,
            "reason": durability.reason,
            "reachable": durability.reachable,
            "lag_chunks": durability.lag_chunks,
            "latency_seconds": durability.latency_seconds,
            "failures_total": durability.failures_total,
            "used_memory_bytes": durability.used_memory_bytes,
        },
    }

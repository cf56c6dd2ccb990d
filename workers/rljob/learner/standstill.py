"""A stand-still of both sides: the learner waits for batches while the actors wait to insert. Reported with its cause."""

from collections.abc import Sequence
from dataclasses import dataclass

from rljob.ingest.shard_status import ActorStatus, LimiterStatus, ShardStatus

STANDSTILL_SECONDS = 10.0
"""Without a batch for so long, while no actor may insert, nothing moves; a slow actor's chunk takes less."""


@dataclass(frozen=True, slots=True)
class ShardView:
    """What the learner knows of one shard: whether it is subscribed to it, whether it answers, its latest status."""

    index: int
    subscribed: bool
    quiet: bool
    status: ShardStatus | None = None


def standstill(waited_seconds: float, shards: Sequence[ShardView], actors: Sequence[ActorStatus]) -> str:
    """A sentence that names what each shard waits for, or nothing where something moves.

    ``waited_seconds``: since the last batch became ready, while one was wanted. ``actors``: what the shards last heard of each;
    where none is there, or one is not blocked, the learner merely waits for experience.
    """
    present = [actor for actor in actors if actor.state not in ("Lost", "Finished")]
    if waited_seconds < STANDSTILL_SECONDS or not present or any(actor.state != "Blocked" for actor in present):
        return ""
    causes = "; ".join(f"replay-{shard.index} {_cause(shard)}" for shard in shards)
    count = len(present)
    blocked = f"all {count} actors wait" if count > 1 else "the one actor waits"
    # No figure here moves while nothing else does, so that the sentence is logged once.
    return (
        f"the learner has waited more than {STANDSTILL_SECONDS:.0f} s for a batch while {blocked} to insert: {causes}"
    )


def _cause(shard: ShardView) -> str:
    status = shard.status
    if status is None or (shard.quiet and not shard.subscribed):
        return "does not answer the learner"
    if shard.quiet:
        return "is silent"
    if not shard.subscribed:
        return "has not accepted the learner's subscription"
    limiter = status.limiter or LimiterStatus()
    error, buffer = _samples(limiter.error, "+"), _samples(limiter.buffer)
    if status.state != "serving":
        return f"is {status.state} with {status.items} transitions"
    if limiter.blocked == "inserts":
        depth = status.queue_depth_batches
        offered = f" with {depth:.0f} batches on offer" if depth is not None else ""
        return f"blocks inserts, {error} samples ahead of its ratio (errorBuffer {buffer}){offered}"
    if limiter.blocked == "samples":
        return f"waits for inserts, {error} samples from its ratio (errorBuffer {buffer})"
    return f"limits neither side ({error} samples from its ratio)"


def _samples(value: float | None, sign: str = "") -> str:
    return f"{value:{sign},.0f}" if value is not None else "an unknown number of"

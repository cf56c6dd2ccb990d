"""A stand-still of both sides: the learner waits for batches while the actors wait to insert. Said with its cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

STANDSTILL_SECONDS = 10.0
"""Without a batch for so long, while no actor may insert, nothing moves; a slow actor's chunk takes less."""


@dataclass(frozen=True, slots=True)
class ShardView:
    """What the learner knows of one shard: whether it is subscribed to it, whether it answers, its latest status document."""

    index: int
    subscribed: bool
    quiet: bool
    status: Mapping[str, Any] = field(default_factory=dict)


def standstill(waited_seconds: float, shards: Sequence[ShardView], actors: Sequence[Mapping[str, Any]]) -> str:
    """A sentence that names what each shard waits for, or nothing where something moves.

    ``waited_seconds``: since the last batch became ready, while one was wanted. ``actors``: what the shards last heard of each;
    where none is there, or one is not blocked, the learner merely waits for experience.
    """
    present = [actor for actor in actors if actor.get("state") not in ("Lost", "Finished")]
    if waited_seconds < STANDSTILL_SECONDS or not present or any(actor.get("state") != "Blocked" for actor in present):
        return ""
    causes = "; ".join(f"replay-{shard.index} {_cause(shard)}" for shard in shards)
    count = len(present)
    blocked = f"all {count} actors wait" if count > 1 else "the one actor waits"
    # No figure here moves while nothing else does, so that the sentence is said once.
    return (
        f"the learner has waited more than {STANDSTILL_SECONDS:.0f} s for a batch while {blocked} to insert: {causes}"
    )


def _cause(shard: ShardView) -> str:
    status = shard.status
    if not status or (shard.quiet and not shard.subscribed):
        return "does not answer the learner"
    if shard.quiet:
        return "is silent"
    if not shard.subscribed:
        return "has not accepted the learner's subscription"
    found = status.get("limiter")
    limiter: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    error, buffer = _samples(limiter.get("error"), "+"), _samples(limiter.get("buffer"))
    if status.get("state") != "serving":
        return f"is {status.get('state')} with {status.get('items')} transitions"
    if limiter.get("blocked") == "inserts":
        depth = status.get("queue_depth_batches")
        offered = f" with {depth:.0f} batches on offer" if isinstance(depth, int | float) else ""
        return f"blocks inserts, {error} samples ahead of its ratio (errorBuffer {buffer}){offered}"
    if limiter.get("blocked") == "samples":
        return f"waits for inserts, {error} samples from its ratio (errorBuffer {buffer})"
    return f"limits neither side ({error} samples from its ratio)"


def _samples(value: Any, sign: str = "") -> str:
    return f"{value:{sign},.0f}" if isinstance(value, int | float) else "an unknown number of"

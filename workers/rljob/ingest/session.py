"""One connection of an actor to the ingest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Session:
    """One connection of one incarnation of an actor.

    Attributes:
        heard_at: monotonic time of its last message.
        acknowledge: the sequence number up to which chunks are safe and their actor was not yet told so.
        waiting: accepted chunks whose acknowledgement waits for the log.
        accepted_any: whether a chunk was accepted in this session.
        lease_written_at: monotonic time at which its lease was last written to the log; 0 is never.
    """

    actor: str
    incarnation: str
    heard_at: float
    acknowledge: int | None = None
    waiting: int = 0
    accepted_any: bool = False
    lease_written_at: float = 0.0

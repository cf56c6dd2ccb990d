"""Which actors go when there are too many."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ActorView:
    """What the choice needs to know of one actor.

    Attributes:
        name: its name; breaks ties, so that the choice is the same each time.
        ready: it plays. draining: it, or the node it is on, is going anyway.
        policy_lag_updates: how old the weights are that it plays with; None if unknown.
        started_seconds: when it started; the youngest has the least to lose.
    """

    name: str
    ready: bool
    draining: bool
    policy_lag_updates: float | None
    started_seconds: float


def choose_victims(actors: Iterable[ActorView], count: int) -> tuple[str, ...]:
    """The names of the ``count`` actors to drain, in this order: not ready, draining, stalest policy, youngest."""
    ordered = sorted(
        actors,
        key=lambda actor: (
            actor.ready,
            not actor.draining,
            -(actor.policy_lag_updates or 0.0),
            -actor.started_seconds,
            actor.name,
        ),
    )
    return tuple(actor.name for actor in ordered[: max(0, count)])

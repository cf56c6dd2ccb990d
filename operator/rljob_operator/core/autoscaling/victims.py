"""Which actors go when there are too many."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ActorView:
    """What the choice needs to know of one actor.

    Attributes:
        name: its name; breaks ties, so that the choice is the same each time.
        ready: it plays. draining: it is leaving anyway, or its node is.
        ended: it has ended and would be started again. looping: it keeps ending before it works.
        dismissed: it has been left without a place before and has not come back since.
        policy_lag_updates: how old the weights are that it plays with; None if unknown.
        started_seconds: when it started; the youngest has the least to lose.
    """

    name: str
    ready: bool
    draining: bool
    policy_lag_updates: float | None
    started_seconds: float
    ended: bool = False
    looping: bool = False
    dismissed: bool = False


def choose_victims(actors: Iterable[ActorView], count: int) -> tuple[str, ...]:
    """The names of the ``count`` actors that go.

    In this order: dismissed, looping, ended, not ready, draining, stalest policy, youngest. So an actor that plays is never
    drained for one that only ends again and again.
    """
    ordered = sorted(
        actors,
        key=lambda actor: (
            not actor.dismissed,
            not actor.looping,
            not actor.ended,
            actor.ready,
            not actor.draining,
            -(actor.policy_lag_updates or 0.0),
            -actor.started_seconds,
            actor.name,
        ),
    )
    return tuple(actor.name for actor in ordered[: max(0, count)])

"""What happened to a job, a line each. Pure."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rljob_operator.view.columns import aligned
from rljob_operator.view.words import age


@dataclass(frozen=True, slots=True)
class EventView:
    """One event.

    Attributes:
        time_seconds: when it was last seen, Unix seconds.
        kind: Normal or Warning.
        reason: why, in one word.
        about: what it is about, such as ``Pod/pong-actor-0-x7k2m``.
        note: the same for people.
        count: how often it was seen.
    """

    time_seconds: float
    kind: str
    reason: str
    about: str
    note: str
    count: int = 1


def lines(events: Sequence[EventView]) -> list[str]:
    """Heading and a line an event, the oldest first; nothing where there is none."""
    if not events:
        return []
    now = time.time()
    return aligned(
        [
            ("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"),
            *(
                (_seen(event, now), event.kind, event.reason, event.about, " ".join(event.note.split()))
                for event in sorted(events, key=lambda event: event.time_seconds)
            ),
        ]
    )


def _seen(event: EventView, now: float) -> str:
    ago = age(now - event.time_seconds)
    return f"{ago} (x{event.count})" if event.count > 1 else ago

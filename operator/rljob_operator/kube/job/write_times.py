"""When a status is written that may wait: the later, the longer the API server takes for a write. Pure."""

from __future__ import annotations

from typing import Final

from rljob_operator.core.turn import StatusWrite

PROGRESS_SECONDS: Final = 30.0
"""A status that differs in progress alone is written at most so often."""
SEEN_SECONDS: Final = 3.0
"""And so often one that differs in what is seen."""
SELDOM_SECONDS: Final = 90.0
"""However little there is to tell, and however slow the API server: a status that is older has nobody who looks after it."""
QUICK_WRITE_SECONDS: Final = 0.1
MOST_TIMES_LATER: Final = 3.0
"""Where writes take longer than the first, the API server has too much to do: those that may wait do so as many times longer, up
to this."""
_NEWEST_COUNTS: Final = 0.2


class WriteTimes:
    """Of all jobs of one operator, whose writes go to one API server. Seconds are of a clock that only goes forward."""

    def __init__(self, seen_seconds: float = SEEN_SECONDS) -> None:
        self._seen_seconds, self._write_seconds = seen_seconds, 0.0

    def took(self, seconds: float) -> None:
        """A status was written, and that took so long."""
        self._write_seconds += _NEWEST_COUNTS * (seconds - self._write_seconds)

    def due(self, write: StatusWrite, now: float, written: float) -> float:
        """When a status has to be stored that differs so from the stored one, which was written at ``written``.

        What is seen is told at once where nothing was written just before. Only of an API server that has too much to do it waits
        for more to come: a role that is ready, and what its learner says then, are one write.
        """
        later = min(max(1.0, self._write_seconds / QUICK_WRITE_SECONDS), MOST_TIMES_LATER)
        if write is StatusWrite.BEFORE_ACTING:
            return now
        if write is StatusWrite.SOON:
            return max(written + later * self._seen_seconds, now + (later - 1.0) * self._seen_seconds)
        if write is StatusWrite.WHEN_DUE:
            return written + min(later * PROGRESS_SECONDS, SELDOM_SECONDS)
        return written + SELDOM_SECONDS if write is StatusWrite.SELDOM else float("inf")

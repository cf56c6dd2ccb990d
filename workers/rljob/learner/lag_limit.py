"""How old the weights behind an unroll may be, and whether too many unrolls are older."""

from collections import deque

MOST_UPDATES = 1000
"""An adapting limit goes no higher: older experience teaches little, even where it is scarce."""

NOTABLE_SHARE = 0.1
"""Share of the unrolls given up for their age from which on it is logged."""

_ARRIVALS = 64
_WINDOW_SECONDS = 60.0
_MARK_SECONDS = 5.0
_FEWEST_DECIDED = 64


class LagLimit:
    """A limit on age in updates, and what became of unrolls under it over the last minute. One thread writes.

    ``updates`` covers the way through a full queue. With ``adapts`` the age is added that nine tenths of the unrolls have at most
    when they arrive, since weights take time to reach an actor, and a game its own to be played.
    """

    def __init__(self, updates: int, *, adapts: bool) -> None:
        self._least, self._adapts = updates, adapts
        self._arrived: deque[int] = deque(maxlen=_ARRIVALS)
        self._marks: deque[tuple[float, int, int]] = deque([(0.0, 0, 0)])

    def arrived(self, age_updates: int) -> None:
        """An unroll has come whose weights are so old."""
        self._arrived.append(age_updates)

    @property
    def arrival_age_updates(self) -> int | None:
        """The age that nine tenths of the latest unrolls had at most when they arrived; None before the first."""
        return sorted(self._arrived)[len(self._arrived) * 9 // 10] if self._arrived else None

    @property
    def updates(self) -> int:
        """The limit in force."""
        if not self._adapts:
            return self._least
        return max(self._least, min(MOST_UPDATES, self._least + (self.arrival_age_updates or 0)))

    def count(self, stale: int, kept: int, now: float) -> None:
        """Take over the totals of unrolls that were too old, and of those that were not."""
        if now - self._marks[-1][0] >= _MARK_SECONDS:
            self._marks.append((now, stale, kept))
        while now - self._marks[0][0] > _WINDOW_SECONDS and len(self._marks) > 2:
            self._marks.popleft()

    def in_words(self) -> str:
        """What is given up and what to do about it; empty where it is little."""
        (_, stale, kept), (_, stale_now, kept_now) = self._marks[0], self._marks[-1]
        gone = stale_now - stale
        total = gone + kept_now - kept
        if total < _FEWEST_DECIDED or gone <= NOTABLE_SHARE * total:
            return ""
        way = "a shorter way for weights and unrolls (fewer actors, a smaller unrollQueue.capacity, a faster network)"
        what = way if self._adapts else f"a higher unrollQueue.maxPolicyLagUpdates, or none, or {way}"
        return (
            f"{gone / total:.0%} of the last minute's unrolls were too old to be learned from: they arrive up "
            f"to {self.arrival_age_updates} updates old, and {self.updates} are allowed; what helps is {what}"
        )

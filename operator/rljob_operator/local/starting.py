"""For how long members have been starting without a word; one that hangs before it has announced itself has no address."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

_LONGEST_LOOK_SECONDS = 3.0
"""More than this between two looks is time in which the controller stood still or the machine slept, and counts for nobody."""


class StartingTimes:
    """Counts only time in which somebody looked. ``steady`` counts seconds in which the machine is awake."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._looked = steady()
        self._seconds: dict[str, tuple[str, float]] = {}

    def look(self, starting: Mapping[str, str]) -> dict[str, float]:
        """Seconds for each of these members, given by name with the life that is starting; 0.0 for one that is new."""
        now = self._steady()
        since, self._looked = min(now - self._looked, _LONGEST_LOOK_SECONDS), now
        before, self._seconds = self._seconds, {}
        for name, incarnation in starting.items():
            known, seconds = before.get(name, ("", 0.0))
            self._seconds[name] = incarnation, seconds + since if known == incarnation else 0.0
        return {name: seconds for name, (_, seconds) in self._seconds.items()}

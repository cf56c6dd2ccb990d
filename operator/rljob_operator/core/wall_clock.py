"""The wall clock, and how far it jumped: what separates a time of day that was changed from time that has passed."""

from __future__ import annotations

import time
from collections.abc import Callable

from rljob_operator.core.desired import ClockReading

CLOCK_JUMP_SECONDS = 5.0
"""A change of the wall clock beyond this is a jump; below it is what time servers correct in passing."""


class WallClock:
    """Reads the wall clock and compares it with the steady one that only counts while the machine is awake.

    A time server's step, a changed time of day, and a machine that slept all look the same from here: the wall clock has moved
    and nothing else has. So a jump is what has to be left out wherever working time is counted.

    Args:
        wall: Unix seconds.
        steady: seconds since any moment, standing still while the machine sleeps (CLOCK_MONOTONIC, not CLOCK_BOOTTIME).
        offset_seconds: wall less steady at the last look of somebody before, on the same boot of this machine; None begins
            with the present.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        offset_seconds: float | None = None,
    ) -> None:
        self._wall = wall
        self._steady = steady
        self.offset_seconds = wall() - steady() if offset_seconds is None else offset_seconds
        """Wall less steady at the last look."""

    def now(self) -> float:
        """Unix seconds."""
        return self._wall()

    def read(self) -> ClockReading:
        """The time now, and how far the wall clock jumped since the last reading."""
        now = self._wall()
        offset = now - self._steady()
        clock_jump, self.offset_seconds = offset - self.offset_seconds, offset
        return ClockReading(now, clock_jump if abs(clock_jump) > CLOCK_JUMP_SECONDS else 0.0)

"""The steady part of a run: what a counter gained between the end of the warm-up and a while later."""

from __future__ import annotations

import time


class Window:
    """``seconds`` of measurement that begin ``warm_up_seconds`` after the first time that learning was noted."""

    def __init__(self, warm_up_seconds: float, seconds: float) -> None:
        self._warm_up, self._seconds = warm_up_seconds, seconds
        self._first: float | None = None
        self._start: tuple[float, int, int] | None = None
        self.result: dict[str, float] = {}

    def note(self, sampled: int, trained: int) -> bool:
        """Note agent steps sampled and trained so far; True once the window is over. Nothing counts before the first update."""
        now = time.perf_counter()
        if trained == 0:
            return False
        self._first = self._first or now
        if self._start is None:
            if now - self._first >= self._warm_up:
                self._start = (now, sampled, trained)
            return False
        start, sampled_then, trained_then = self._start
        elapsed = now - start
        if elapsed < self._seconds:
            return False
        self.result = self.result or {
            "steps_per_second": (sampled - sampled_then) / elapsed,
            "learned_steps_per_second": (trained - trained_then) / elapsed,
            "window_seconds": elapsed,
        }
        return True

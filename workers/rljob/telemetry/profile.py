"""A few seconds of a role's loop under torch's profiler: a trace to open in a browser, and a table of operations.

Driven from the loop's own thread by the sign of life that it gives every turn, so that a loop knows nothing of it. While the
profiler runs, the loop is slower; afterwards, and without --profile, it costs nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from rljob.threads import start_contained

log = logging.getLogger(__name__)

AFTER_SECONDS: Final = 10.0
"""How long the loop works before it is recorded: the first updates are not like the others."""
SECONDS: Final = 3.0
TURNS: Final = 500
"""Turns of the loop, at most: a fast one makes a hundred thousand events a second, which take a minute to sum up."""

_TABLE_ROWS: Final = 40


class Profile:
    """Writes ``profiles/<name>.trace.json`` (Chrome and Perfetto read it) and ``profiles/<name>.txt`` in ``run_dir``, once.

    Call it every turn of the loop, always from one thread. The clock starts when ``working()`` is first true. ``close`` writes
    what there is when the loop ends early, and waits for what is being written.
    """

    def __init__(
        self,
        run_dir: Path,
        name: str,
        working: Callable[[], bool],
        *,
        after_seconds: float = AFTER_SECONDS,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.trace = run_dir / "profiles" / f"{name}.trace.json"
        self.table = run_dir / "profiles" / f"{name}.txt"
        self._working, self._clock = working, clock
        self._after_seconds, self._seconds = after_seconds, seconds
        self._start_at: float | None = None
        self._turns = 0
        self._profiler: Any = None
        self._writer: threading.Thread | None = None
        self._done = False

    def __call__(self) -> None:
        """A turn of the loop begins."""
        if self._done:
            return
        now = self._clock()
        if self._start_at is None:
            self._start_at = now + self._after_seconds if self._working() else None
        elif self._profiler is None:
            if now >= self._start_at:
                self._start()
        else:
            self._turns += 1
            if now >= self._start_at + self._seconds or self._turns >= TURNS:
                self._stop()

    def close(self) -> None:
        """The loop has ended: stop if it was running, and return when everything is written."""
        self._stop()
        if self._writer is not None:
            self._writer.join()

    def _stop(self) -> None:
        self._done = True
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            profiler.stop()
            # Tens of megabytes: on a thread of its own, so that the loop goes on meanwhile.
            self._writer = start_contained("profile", partial(self._write, profiler))

    def _write(self, profiler: Any) -> None:
        try:
            self.trace.parent.mkdir(parents=True, exist_ok=True)
            profiler.export_chrome_trace(str(self.trace))
            key = "self_device_time_total" if _on_gpu() else "self_cpu_time_total"
            self.table.write_text(profiler.key_averages().table(sort_by=key, row_limit=_TABLE_ROWS) + "\n")
        except OSError as error:
            log.warning("the profile could not be written: %s", error)
            return
        log.info("profile written: %s and %s", self.trace, self.table.name)

    def _start(self) -> None:
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if _on_gpu() else [])]
        self._profiler = profile(activities=activities)
        self._profiler.start()
        self._start_at = self._clock()  # starting takes a while
        log.info("profiling for %g s", self._seconds)


def _on_gpu() -> bool:
    import torch

    return torch.cuda.is_available()

"""A few updates of a role's loop under torch's profiler, when asked: a trace to open in a browser, and a table of operations.

Driven from the loop's own thread by the sign of life that it gives every turn, so that a loop knows nothing of it: torch's
profiler must be stopped on the thread that has started it. While it runs the loop is slower; otherwise a turn costs a comparison.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from rljob.telemetry.server import Reply
from rljob.threads import start_contained

SECONDS: Final = 3.0
TURNS: Final = 100
"""Turns of the loop, at most: a trace grows by a thousand events a turn, in memory, and takes a second to sum up for each ten."""

_TABLE_ROWS: Final = 40


class TorchTrace:
    """Call it every turn of the loop, always from one thread; ``ask`` and ``pages`` are for the threads of a server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wanted = False
        self._profiler: Any = None
        self._turns, self._ends_at = 0, 0.0
        self._trace: Reply = 404, "text/plain", b"none was asked for\n"
        self._table = self._trace
        self.pages: Mapping[str, Callable[[], Reply]] = {
            "/profile/torch": lambda: self._trace,
            "/profile/operations": lambda: self._table,
        }
        """The trace, as JSON packed by gzip, and the table; 404 before they were asked for, 202 until they are there."""

    def ask(self, note: Mapping[str, Any]) -> None:
        """Record the next turns, unless that is under way."""
        if self._trace[0] != 202:
            self._trace = self._table = 202, "text/plain", b"under way\n"
            start_contained("torch-trace", self._load)

    def _load(self) -> None:
        """What the profiler loads when it starts: two seconds of a core, which would hold up the loop."""
        import_module("torch._dynamo")
        self._wanted = True

    def __call__(self) -> None:
        """A turn of the loop begins."""
        if not self._wanted:
            return
        if self._profiler is None:
            from torch.profiler import profile

            self._profiler = profile()
            self._profiler.start()
            self._turns, self._ends_at = 0, self._clock() + SECONDS  # starting takes a while
            return
        self._turns += 1
        if self._turns >= TURNS or self._clock() >= self._ends_at:
            profiler, self._profiler, self._wanted = self._profiler, None, False
            profiler.stop()
            # Megabytes: on a thread of its own, so that the loop goes on meanwhile.
            start_contained("torch-trace", partial(self._write, profiler))

    def _write(self, profiler: Any) -> None:
        try:
            averages = profiler.key_averages()
            on_device = any(each.self_device_time_total for each in averages)
            key = "self_device_time_total" if on_device else "self_cpu_time_total"
            table = averages.table(sort_by=key, row_limit=_TABLE_ROWS)
            with TemporaryDirectory() as folder:
                file = Path(folder) / "trace.json.gz"
                profiler.export_chrome_trace(str(file))
                trace = file.read_bytes()
            self._table = 200, "text/plain", f"{table}\n".encode()
            self._trace = 200, "application/gzip", trace
        except Exception as error:
            self._trace = self._table = 500, "text/plain", f"{error}\n".encode()
            raise

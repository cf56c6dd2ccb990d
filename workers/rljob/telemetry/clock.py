"""Where a loop's wall time goes: an always-on clock that is told, at each turn, which stage begins.

A role's loop passes through a handful of named stages (``env``, ``infer``, ``send`` ...). Sampling profilers cannot say
which *stage* waited; two timestamps round every stage cost twice. One timestamp at each change of stage is enough,
because the end of one stage is the beginning of the next. While the process is profiled, each stage is a span of its time line
and, in a process that computes on a CUDA device, a range of NVIDIA's profilers.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any
from weakref import WeakSet

from rljob.telemetry import timeline

_NONE = -1
"""Index of the running stage while no stage runs."""

_READ_ATTEMPTS = 16
"""How often a reader tries to catch the clock between two changes of stage; at 10 kHz the first attempt succeeds."""

_clocks: "WeakSet[StageClock]" = WeakSet()
"""Those of this process."""


class StageClock:
    """Total seconds spent in each of a fixed set of stages.

    Exactly one thread (the loop that owns the clock) calls :meth:`enter`, :meth:`stop` and :meth:`stage`; any thread
    may call :meth:`seconds` at any time and sees a consistent picture that includes the part of
    the running stage that has already passed. The owner takes no lock: it publishes one immutable tuple at each change.

    A reading never goes back. The owner may be interrupted between reading the time and publishing the change; a reader
    that comes in between credits that moment to the old stage, the owner to the new one. Readers therefore share a
    floor of what was told before, so that a Prometheus counter never seems to restart; what this adds to a stage is at
    most one such interruption, milliseconds, and does not build up.

    Args:
        stages: the names, in the order they are reported; at least one, no two the same.

    Raises:
        ValueError: no stage, or a name given twice.
    """

    __slots__ = ("__weakref__", "_floor", "_index", "_ranges", "_readers", "_running", "_totals", "stages")

    def __init__(self, stages: Sequence[str]) -> None:
        self.stages: tuple[str, ...] = tuple(stages)
        if not self.stages or len(set(self.stages)) != len(self.stages):
            raise ValueError(f"stages must be one or more different names, not {list(self.stages)}")
        self._index = {name: position for position, name in enumerate(self.stages)}
        self._totals = [0] * len(self.stages)
        # (index of the running stage, when it began in ns, its total in ns at that moment): replaced, never changed, so
        # a reader that finds the same tuple before and after its copy knows that no stage ended in between.
        self._running: tuple[int, int, int] = (_NONE, 0, 0)
        self._readers = threading.Lock()
        self._floor = [0] * len(self.stages)
        self._ranges: Any = None  # where a range is open
        _clocks.add(self)

    def enter(self, stage: str) -> None:
        """Ends the running stage, if any, and begins ``stage``. Entering the running stage again is allowed.

        Raises:
            ValueError: the clock was not built with this stage.
        """
        try:
            index = self._index[stage]
        except KeyError:
            raise ValueError(f"unknown stage {stage!r}; this clock has: {', '.join(self.stages)}") from None
        now = perf_counter_ns()
        totals = self._totals
        previous, since, before = self._running
        if previous >= 0:
            totals[previous] = before + now - since
        self._running = (index, now, totals[index])
        if timeline.recording is not None or self._ranges is not None:
            self._record(previous, since, now, stage)

    def stop(self) -> None:
        """Ends the running stage; time that passes until the next :meth:`enter` belongs to no stage."""
        now = perf_counter_ns()
        previous, since, before = self._running
        if previous >= 0:
            self._totals[previous] = before + now - since
        self._running = (_NONE, 0, 0)
        if timeline.recording is not None or self._ranges is not None:
            self._record(previous, since, now, None)

    def _record(self, ended: int, since: int, now: int, begins: str | None) -> None:
        """While the process is profiled, and once after it: a span for the stage that ended, a range for the new one."""
        if self._ranges is not None:
            self._ranges.range_pop()
            self._ranges = None
        recording = timeline.recording
        if recording is not None:
            if ended >= 0:
                recording.span(self.stages[ended], since, now)
            if recording.ranges is not None and begins is not None:
                self._ranges = recording.ranges
                self._ranges.range_push(begins)

    @property
    def current(self) -> str | None:
        """The running stage, or None."""
        return self.running[0]

    @property
    def running(self) -> tuple[str | None, int]:
        """The running stage, or None, and when it began, as ``time.perf_counter_ns`` counts."""
        index, since, _ = self._running
        return self.stages[index] if index >= 0 else None, since

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Enters ``name`` and, on the way out, goes back to whatever ran before."""
        outer = self.current
        self.enter(name)
        try:
            yield
        finally:
            if outer is None:
                self.stop()
            else:
                self.enter(outer)

    def seconds(self) -> dict[str, float]:
        """Total seconds of every stage so far, in the order of :attr:`stages`. Safe from any thread."""
        with self._readers:
            for _ in range(_READ_ATTEMPTS):
                running = self._running
                totals = list(self._totals)
                now = perf_counter_ns()
                if self._running is running:
                    break
            index, since, before = running
            if index >= 0:
                totals[index] = before + max(0, now - since)
            totals = self._floor = [max(now_told, told) for now_told, told in zip(totals, self._floor, strict=True)]
        return {name: total * 1e-9 for name, total in zip(self.stages, totals, strict=True)}


def running_stages() -> list[tuple[str, int]]:
    """The running stage of each clock of this process that has one, and when it began, in nanoseconds."""
    found = (clock.running for clock in list(_clocks))
    return [(stage, since) for stage, since in found if stage is not None]

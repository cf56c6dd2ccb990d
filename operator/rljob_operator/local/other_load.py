"""Whether other programs take this machine's cores from a run, which is then slower than it was measured elsewhere."""

import contextlib
import time

import psutil

_LOOK_SECONDS = 30.0
_BUSY = 0.95
"""Share of the machine's time: with less, every process that wants a core has one."""
_MUCH = 0.2
"""Share of the machine's time that others may take without a message."""


class OtherLoad:
    """Compares the machine's load with what this process and all below it take, over ``look_seconds`` at least."""

    def __init__(self, look_seconds: float = _LOOK_SECONDS) -> None:
        self._look_seconds = look_seconds
        self._before = self._times()

    def words(self) -> str:
        """The load of other programs since the last check where that is much of a busy machine, else nothing; checks no more
        often than it was told to."""
        elapsed = time.monotonic() - self._before[0]
        if elapsed < self._look_seconds:
            return ""
        before, self._before = self._before, self._times()
        cores = psutil.cpu_count() or 1
        idle, own = (self._before[k] - before[k] for k in (1, 2))
        return taken_by_others(cores, cores - idle / elapsed, own / elapsed)

    @staticmethod
    def _times() -> tuple[float, float, float]:
        """Now, and seconds of all cores since the start: idle, and of this process with all below it."""
        here, machine, own = psutil.Process(), psutil.cpu_times(), 0.0
        for process in (here, *here.children(recursive=True)):
            with contextlib.suppress(psutil.Error):  # it has just ended
                own += sum(process.cpu_times()[:4])  # with what ended below it
        return time.monotonic(), machine.idle + getattr(machine, "iowait", 0.0), own


def taken_by_others(cores: int, busy: float, own: float) -> str:
    """A line where others take much of a busy machine; ``busy`` and ``own`` in cores."""
    others = busy - own
    if busy < _BUSY * cores or others < _MUCH * cores:
        return ""
    return f"other programs take {others:.1f} of this machine's {cores} cores, so the run is slower"

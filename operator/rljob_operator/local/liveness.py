"""Which process of this machine is meant: a pid together with when it started, so that a pid used again is not mistaken."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process of this boot: its id, and its start in clock ticks since the machine started."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """The process that has this id now; None where none runs (one that has ended and waits to be reaped counts as gone)."""
        stat = _stat(pid)
        if stat is None or stat[0] in "ZX":
            return None
        return cls(pid, stat[1])

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        return ProcessIdentity.of(self.pid) == self

    def send(self, number: signal.Signals) -> None:
        """Send a signal, but never to another process that got the same id later."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _stat(pid: int) -> tuple[str, int] | None:
    """(state letter, start ticks) of a process; its name, which comes before them, may hold spaces and brackets."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])

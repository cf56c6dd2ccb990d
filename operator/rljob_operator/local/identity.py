"""Which process is meant, wherever it runs: a bare process id is used again, and means another process elsewhere."""

import contextlib
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")


_BOOT: Final = next((each.read_text().strip() for each in _PROC.glob("sys/kernel/random/boot_id")), "")
_NAMESPACE: Final = next((os.readlink(each) for each in _PROC.glob("self/ns/pid")), "")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process: its id, its start in clock ticks since the machine started, and where both count: this boot of this machine, and
    this namespace of process ids, unless others are given. ``host`` is for people."""

    pid: int
    start_ticks: int
    boot: str = _BOOT
    namespace: str = _NAMESPACE
    host: str = field(default=os.uname().nodename, compare=False)

    @classmethod
    def of(cls, pid: int) -> "ProcessIdentity | None":
        """The process that has this id here now; None where none runs (one that has ended and waits to be reaped counts as
        gone)."""
        stat = _stat(pid)
        return None if stat is None or stat[0] in "ZX" else cls(pid, stat[1])

    @property
    def of_here(self) -> bool:
        """Whether its id means a process of this boot and this namespace."""
        return (self.boot, self.namespace) == (_BOOT, _NAMESPACE)

    @property
    def alive(self) -> bool:
        """Whether this very process still runs, here."""
        return ProcessIdentity.of(self.pid) == self

    def send(self, number: signal.Signals) -> None:
        """Send a signal, but never to another process that got the same id later, or has it here."""
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

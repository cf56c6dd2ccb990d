"""What this process takes from its machine now: CPU, memory, open files, and what waits in its sockets."""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import termios
import time
from pathlib import Path
from typing import Final

from rljob.telemetry.machine import rss_bytes, shm_bytes

SAMPLED_EVERY_SECONDS: Final = 5.0
_PROC: Final = Path("/proc")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class ProcessUse:
    """Samples this process, at most once in five seconds, by whoever asks: every reader is told the same figures.

    ``now`` gives ``cpu_seconds`` since the start and ``cpu_cores`` in recent use, both with the processes below this one (those
    of environments, say), ``rss_bytes`` and ``shm_bytes`` of it, ``open_files``, and ``receive_queue_bytes`` and
    ``send_queue_bytes``: what its sockets have received and not read, and sent and not got rid of, by the kernel's account.
    The last three are missing where the system does not tell them.
    """

    def __init__(self) -> None:
        self._taken = (time.monotonic(), cpu_seconds())
        self._figures: dict[str, float] = {}

    def now(self) -> dict[str, float]:
        """The newest sample. May be called from any thread; two that sample at once both have a true one."""
        now, (then, spent) = time.monotonic(), self._taken
        if self._figures and now - then < SAMPLED_EVERY_SECONDS:
            return self._figures
        total = max(spent, cpu_seconds())  # a child that was never waited for takes its time with it
        self._taken = (now, total)
        self._figures = {
            "cpu_seconds": total,
            "cpu_cores": (total - spent) / max(now - then, 1e-3),
            "rss_bytes": float(rss_bytes()),
            "shm_bytes": float(shm_bytes()),
            **_descriptors(),
        }
        return self._figures


def cpu_seconds() -> float:
    """CPU time of this process and of those below it since they began, user's and system's."""
    if not (_PROC / "self" / "stat").exists():
        import psutil  # which an operator lacks

        return sum(psutil.Process().cpu_times()[:4])
    return _cpu_seconds_of(str(os.getpid()))


def _cpu_seconds_of(pid: str) -> float:
    """As the kernel counts it: own time, that of children that were waited for, and that of those that live."""
    try:
        times = (_PROC / pid / "stat").read_bytes().rpartition(b")")[2].split()[11:15]
        tasks = os.listdir(_PROC / pid / "task")
    except OSError:
        return 0.0  # it has just ended
    children = [child for task in tasks for child in _children(pid, task)]
    return sum(map(int, times)) / _TICKS + sum(map(_cpu_seconds_of, children))


def _children(pid: str, task: str) -> list[str]:
    try:
        return (_PROC / pid / "task" / task / "children").read_text().split()
    except OSError:
        return []  # a thread that has ended, or a kernel that keeps no such list


def _descriptors() -> dict[str, float]:
    """How many descriptors are open, and the bytes that wait in the sockets among them: to be read, and to be taken over. Empty
    where the system does not say it, as to a process that has changed its user."""
    try:
        descriptors = [int(name) for name in os.listdir(_PROC / "self" / "fd")]
    except OSError:
        return {}
    received = sent = 0
    for descriptor in descriptors:
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                received += _waiting(descriptor, termios.FIONREAD)
                sent += _waiting(descriptor, termios.TIOCOUTQ)
        except OSError:
            continue  # closed meanwhile, or one that listens
    files = len(descriptors) - 1  # without that of the listing
    return {"open_files": files, "receive_queue_bytes": received, "send_queue_bytes": sent}


def _waiting(descriptor: int, request: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(descriptor, request, bytes(4)))[0])


PROCESS: Final = ProcessUse()
"""Of this process, for all who tell of it."""

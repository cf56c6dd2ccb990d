"""What this process takes from its machine now: CPU, memory, open files, what waits in its sockets; and which machine that is."""

import fcntl
import os
import platform
import stat
import struct
import termios
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from rljob.threads import usable_cores

_PROC: Final = Path("/proc")
PACKAGES: Final = ("rljob", "torch", "gymnasium", "ale-py", "numpy", "pyzmq", "redis", "lz4", "safetensors")


def describe_machine() -> dict[str, Any]:
    """``{"machine": {...}, "versions": {...}}``, all plain text and numbers; absent packages are left out."""
    import psutil  # which an operator lacks

    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "machine": {
            "processor": _processor(),
            "cores": usable_cores(),
            "memory_bytes": int(psutil.virtual_memory().total),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        },
        "versions": versions,
    }


def _processor() -> str:
    lines = (_PROC / "cpuinfo").read_text().splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or "unknown")


def _status_bytes(name: str) -> float:
    """A ``kB`` line of /proc/self/status in bytes; 0 where there is none."""
    lines = (_PROC / "self" / "status").read_text().splitlines()
    return next((float(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 0.0)


SAMPLED_EVERY_SECONDS: Final = 5.0
WORKING_SHARE: Final = 0.1
"""A thread works that does more than this share of the computing of its process."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class ProcessUse:
    """Samples this process, at most once in five seconds, when asked: every reader is told the same figures.

    ``now`` gives ``cpu_seconds`` since the start, ``cpu_cores`` in recent use, and ``core_wait_cores``, those that working
    threads would have taken more if they had had one whenever they wanted it; all three with the processes below this one
    (those of environments, say). Further its resident memory, ``rss_bytes``, and of that what is shared (``/dev/shm``, tmpfs),
    ``shm_bytes``; ``open_files``, and ``receive_queue_bytes`` and
    ``send_queue_bytes``: what its sockets have received and not read, and sent and not got rid of, by the kernel's account. The
    last three, and the waiting, are missing where the system does not tell them.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget what was before: a process that was forked has computed nothing yet, whatever its parent has."""
        self._taken = (time.monotonic(), cpu_seconds(), thread_times())
        self._figures: dict[str, float] = {}

    def now(self) -> dict[str, float]:
        """The newest sample. May be called from any thread; two that sample at once both have a true one."""
        now, (then, spent, threads) = time.monotonic(), self._taken
        if self._figures and now - then < SAMPLED_EVERY_SECONDS:
            return self._figures
        total = max(spent, cpu_seconds())  # a child that was never waited for takes its time with it
        elapsed, current = max(now - then, 1e-3), thread_times()
        self._taken = (now, total, current)
        told = {"core_wait_cores": core_wait_seconds(threads, current) / elapsed} if current else {}
        self._figures = {
            "cpu_seconds": total,
            "cpu_cores": (total - spent) / elapsed,
            **told,
            "rss_bytes": _status_bytes("VmRSS"),
            "shm_bytes": _status_bytes("RssShmem"),
            **_descriptors(),
        }
        return self._figures


def cpu_seconds(pid: int | None = None) -> float:
    """CPU time of a process, this one unless another is named, and of those below it since they began, user's and system's."""
    return _of_all(str(pid or os.getpid()), _cpu_seconds_of)


Threads = Mapping[str, tuple[float, float]]
"""The id of a thread -> seconds since it began in which it had a core, and in which it was ready to run and had none,
whether others had taken it or a limit on the container."""


def thread_times(pid: int | None = None) -> Threads:
    """Those of a process, this one unless another is named, and of those below it; empty where the kernel does not count them."""
    found: dict[str, tuple[float, float]] = {}

    def note(of: str, tasks: list[str]) -> float:
        for task in tasks:
            run, waited, _ = (_PROC / of / "task" / task / "schedstat").read_text().split()
            found[task] = (int(run) * 1e-9, int(waited) * 1e-9)
        return 0.0

    _of_all(str(pid or os.getpid()), note)
    return found


def core_wait_seconds(before: Threads, after: Threads) -> float:
    """Seconds between two moments in which working threads had no core. One that does less than a tenth of the computing, such as
    those that serve sockets, wakes, waits for its turn and has nothing to do: no work is held up by that."""
    grown = []
    for task, (run, waited) in after.items():
        run_before, waited_before = before.get(task, (0.0, 0.0))
        grown.append((run - run_before, waited - waited_before))
    least = WORKING_SHARE * sum(run for run, _ in grown)
    return sum(waited for run, waited in grown if run > least)


def _of_all(pid: str, one: Callable[[str, list[str]], float]) -> float:
    """``one`` of a process, given its threads, and of all below it that live."""
    try:
        tasks = os.listdir(_PROC / pid / "task")
        own = one(pid, tasks)
    except OSError:
        return 0.0  # it has just ended
    return own + sum(_of_all(child, one) for task in tasks for child in _children(pid, task))


def _cpu_seconds_of(pid: str, _tasks: list[str]) -> float:
    """As the kernel counts it: own time, and that of children that were waited for."""
    times = (_PROC / pid / "stat").read_bytes().rpartition(b")")[2].split()[11:15]
    return sum(map(int, times)) / _TICKS


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
"""The use of this process, for all who tell of it."""
os.register_at_fork(after_in_child=PROCESS.begin)

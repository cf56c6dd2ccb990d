"""What the process itself takes from the machine, read from the kernel's own account."""

from __future__ import annotations

from pathlib import Path

import psutil

_STATUS = Path("/proc/self/status")


def rss_bytes() -> int:
    """Resident memory of this process in bytes, shared pages included."""
    return _field("VmRSS") or int(psutil.Process().memory_info().rss)


def shm_bytes() -> int:
    """The part of the resident memory that lives in shared memory (``/dev/shm``, tmpfs), in bytes; 0 where unknown."""
    return _field("RssShmem")


def _field(name: str) -> int:
    """A ``kB`` line of /proc/self/status in bytes; 0 if there is none (not Linux)."""
    try:
        for line in _STATUS.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0

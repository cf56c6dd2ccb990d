"""How many cores this process may use."""

import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_CGROUP: Final = Path("/sys/fs/cgroup")


def usable_cores(cgroup: Path = _CGROUP) -> int:
    """At least 1: those that this process may run on, or as many as the CPU limit of its container comes to, rounded up, where
    that is less. ``cgroup``: where the container's control groups are mounted, of version 2 or 1."""
    cores = len(os.sched_getaffinity(0))
    for files in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        with suppress(OSError, ValueError):  # "max", where there is no limit, is no number
            quota, period = map(int, " ".join((cgroup / name).read_text() for name in files).split())
            if quota > 0:
                cores = min(cores, math.ceil(quota / period))
    return cores

"""The machine and the versions a run was made with, so that its figures can be compared with others later, and what the process
itself takes from it.
"""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from rljob.cores import usable_cores

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
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


_STATUS = Path("/proc/self/status")


def rss_bytes() -> int:
    """Resident memory of this process in bytes, shared pages included."""
    if known := _field("VmRSS"):
        return known
    import psutil

    return int(psutil.Process().memory_info().rss)


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

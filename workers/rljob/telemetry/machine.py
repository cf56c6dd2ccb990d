"""The machine and the versions a run was made with, so that its figures can be compared with others later."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import psutil

from rljob.cores import usable_cores

PACKAGES: Final = ("rljob", "torch", "gymnasium", "ale-py", "numpy", "pyzmq", "redis", "lz4", "safetensors")


def describe_machine() -> dict[str, Any]:
    """``{"machine": {...}, "versions": {...}}``, all plain text and numbers; absent packages are left out."""
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

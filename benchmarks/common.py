"""What every benchmark prints: one JSON line a result, and the machine it ran on."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

_PACKAGES = ("torch", "numpy", "ale-py", "gymnasium", "pyzmq", "lz4", "redis", "msgpack")


_before = psutil.cpu_times()

MOST_STOLEN = 0.05
"""With more of the processors' time than this taken by the host, a round of a comparison is measured again ..."""
ATTEMPTS = 4
"""... so many times in all, and then the least disturbed one counts."""


def report(name: str, **figures: Any) -> None:
    """Print one result; floats are rounded to four significant digits.

    ``stolen_share``: of the processors' time since the result before, what a virtual machine's host gave to others. Seconds
    measured with much of it say little; what was measured side by side says more.
    """
    global _before
    before, _before = _before, psutil.cpu_times()
    rounded = {key: _rounded(value) for key, value in {**figures, "stolen_share": _stolen_since(before)}.items()}
    print(json.dumps({"benchmark": name, **rounded}), flush=True)


def undisturbed(name: str, measure: Callable[[], dict[str, Any]], **about: Any) -> dict[str, Any]:
    """``measure()``, again while the host takes more than ``MOST_STOLEN`` of the processors' time during it; reported.

    The least disturbed of at most ``ATTEMPTS`` counts and is returned. The others are reported under ``NAME_left_out``: for
    what the host did, not for what came out.
    """
    attempts: list[tuple[float, dict[str, Any]]] = []
    while len(attempts) < ATTEMPTS and (not attempts or attempts[-1][0] > MOST_STOLEN):
        before = psutil.cpu_times()
        found = measure()
        attempts.append((_stolen_since(before) or 0.0, found))
    best = min(range(len(attempts)), key=lambda number: attempts[number][0])
    for number, (stolen, found) in enumerate(attempts):
        counted = name if number == best else f"{name}_left_out"
        report(counted, **about, **found, stolen_share_of_attempt=stolen)
    return attempts[best][1]


def _stolen_since(before: Any) -> float | None:
    """Share of all processors' time since ``before`` that the host gave to others; None where the system does not say."""
    # Guest time, which comes after the eighth, is in user time already.
    passed = [now - then for now, then in zip(psutil.cpu_times()[:8], before[:8], strict=True)]
    return passed[7] / sum(passed) if len(passed) == 8 and sum(passed) > 0 else None


def limit_to_avx2() -> None:
    """Hold torch, oneDNN and MKL to AVX2 in every process that is started from now on.

    What an older processor would do is only approached that way: clock, caches and memory stay this one's, and so do the emulator
    and numpy. Results say ``"arithmetic": "AVX2 by instruction-set limit"``.
    """
    os.environ |= {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    }


def machine() -> dict[str, Any]:
    """Processor, cores, memory, bf16 support, versions, commit and date."""
    cpu = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = next((line.split(":", 1)[1].strip() for line in cpu.splitlines() if line.startswith("model name")), "")
    return {
        "cpu": model or platform.processor(),
        "cores": os.cpu_count(),
        "avx512_bf16": "avx512_bf16" in cpu,
        "arithmetic": "AVX2 by instruction-set limit"
        if "ATEN_CPU_CAPABILITY" in os.environ
        else "all that the processor has",
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d"),
    }


def resident_bytes(pid: int) -> dict[int, int]:
    """Resident memory of a process and all its descendants by process id; shared pages count once (proportional set size)."""
    found = {}
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(pid)
        for process in [parent, *parent.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):  # it ended meanwhile
                found[process.pid] = process.memory_full_info().pss
    return found


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _commit() -> str:
    answer = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return answer.stdout.strip()

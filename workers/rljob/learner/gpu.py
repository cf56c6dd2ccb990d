"""What the learner's GPU is, and how busy and how full it is."""

import contextlib
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch

from rljob.learner.nvml import DriverFigures, nvml

FRESH_SECONDS: Final = 0.5
"""Figures of the driver are as old as this at most: many may ask, and a share of time has to be measured over some time."""

_KERNEL_MODULE = Path("/proc/driver/nvidia/version")


class Gpu:
    """The device that a learner computes on. On a CPU all answers are empty. Any thread may ask.

    ``library``: ``pynvml``, ready to be asked, or None where there is none; without it utilisation and power are left out.
    """

    def __init__(
        self,
        device: torch.device,
        library: Callable[[], Any | None] = nvml,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._device, self._clock = device, clock
        self._lock = threading.Lock()
        self._driver: DriverFigures | None = None
        self._told: dict[str, float] = {}
        self._told_at = -FRESH_SECONDS
        self.facts: dict[str, Any] = {}
        """``device_name``, ``device_memory_bytes`` and ``driver``, its version, where that can be found."""
        if device.type == "cuda":
            properties: Any = torch.cuda.get_device_properties(device)
            self._driver = _driver_figures(library(), f"GPU-{properties.uuid}")
            self.facts = {"device_name": properties.name, "device_memory_bytes": int(properties.total_memory)}
            version = (self._driver.driver if self._driver is not None else None) or kernel_module_version()
            if version:
                self.facts["driver"] = version

    def figures(self) -> dict[str, float]:
        """``memory_used_bytes`` (by all processes), ``memory_total_bytes``, ``allocated_bytes`` (tensors of this one), and what
        ``DriverFigures`` adds."""
        if self._device.type != "cuda":
            return {}
        with self._lock:
            now = self._clock()
            if now - self._told_at >= FRESH_SECONDS:
                self._told_at = now
                free, total = torch.cuda.mem_get_info(self._device)
                self._told = {
                    "memory_used_bytes": float(total - free),
                    "memory_total_bytes": float(total),
                    "allocated_bytes": float(torch.cuda.memory_allocated(self._device)),
                    **(self._driver.figures() if self._driver is not None else {}),
                }
            return dict(self._told)

    def close(self) -> None:
        """No figures of the driver from now on."""
        with self._lock:
            driver, self._driver = self._driver, None
            if driver is not None:
                driver.close()


def kernel_module_version(file: Path = _KERNEL_MODULE) -> str:
    """The version that NVIDIA's kernel module says it has; empty where it is not known."""
    try:
        found = re.search(r"Kernel Module[^\n]*?\s(\d+\.\d[\d.]*)", file.read_text())
    except OSError:
        return ""
    return found[1] if found else ""


def _driver_figures(library: Any | None, uuid: str) -> DriverFigures | None:
    if library is None:
        return None
    try:
        return DriverFigures(library, uuid)
    except library.NVMLError:
        with contextlib.suppress(library.NVMLError):
            library.nvmlShutdown()
        return None

"""What the learner's GPU is, how busy and how full it is, and where its time goes by the stages of the loop that feeds it. The
figures of its driver come from NVIDIA's own library (``nvidia-ml-py``, the extra ``[gpu]``)."""

import contextlib
import importlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from rljob.telemetry.clock import StageClock

log = logging.getLogger(__name__)


def nvml() -> Any | None:
    """The library, ready to be asked; None where it is not installed, or there is no driver to ask."""
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        log.info("the driver cannot be asked for utilisation and power: %s", error)
        return None
    return library


class DriverFigures:
    """Figures of the device with this ``uuid``, as ``library`` (``pynvml``) has them. What a device does not know is left out.

    SM activity comes from counters that are read twice; it is that of the time between two calls of ``figures``. Devices before
    Hopper have no such counters, nor have slices of one under a driver that keeps them to itself. Used by one thread at a time.

    Raises the library's ``NVMLError`` where it knows no such device.
    """

    def __init__(self, library: Any, uuid: str) -> None:
        self._library = library
        self._handle = library.nvmlDeviceGetHandleByUUID(uuid)
        self._sample: Any = None
        self._samples: list[Any] = []
        support = self._ask(library.nvmlGpmQueryDeviceSupport, self._handle)
        if support is not None and support.isSupportedDevice:
            self._samples = [library.nvmlGpmSampleAlloc() for _ in range(2)]

    @property
    def driver(self) -> str | None:
        """The driver's version."""
        return self._ask(self._library.nvmlSystemGetDriverVersion)

    def figures(self) -> dict[str, float]:
        """Shares are 0..1: ``utilization`` of time in which anything computed, ``memory_utilization`` in which memory was read or
        written, ``sm_activity`` of the multiprocessors; and ``power_watts``, ``power_limit_watts``."""
        library, handle = self._library, self._handle
        found: dict[str, float] = {}
        rates = self._ask(library.nvmlDeviceGetUtilizationRates, handle)
        if rates is not None:
            found |= {"utilization": rates.gpu / 100.0, "memory_utilization": rates.memory / 100.0}
        for name, ask in (
            ("power_watts", library.nvmlDeviceGetPowerUsage),
            ("power_limit_watts", library.nvmlDeviceGetEnforcedPowerLimit),
        ):
            milliwatts = self._ask(ask, handle)
            if milliwatts is not None:
                found[name] = milliwatts / 1000.0
        activity = self._ask(self._sm_activity) if self._samples else None
        if activity is not None:
            found["sm_activity"] = activity
        return found

    def close(self) -> None:
        """Give back what the library keeps for this. ``figures`` must not be called afterwards."""
        for sample in self._samples:
            self._ask(self._library.nvmlGpmSampleFree, sample)
        self._samples = []
        self._ask(self._library.nvmlShutdown)

    def _sm_activity(self) -> float | None:
        """The share of multiprocessors that were busy since the last call; None at the first."""
        library = self._library
        before, self._sample = self._sample, None
        now = next(sample for sample in self._samples if sample is not before)
        library.nvmlGpmSampleGet(self._handle, now)
        self._sample = now
        if before is None:
            return None
        asked = library.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = library.NVML_GPM_METRICS_GET_VERSION, 1
        asked.sample1, asked.sample2 = before, now
        asked.metrics[0].metricId = library.NVML_GPM_METRIC_SM_UTIL
        answer = library.nvmlGpmMetricsGet(asked).metrics[0]
        return answer.value / 100.0 if answer.nvmlReturn == library.NVML_SUCCESS else None

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any | None:
        try:
            return question(*arguments)
        except self._library.NVMLError:
            return None


FRESH_SECONDS: Final = 0.5
"""Figures of the driver are as old as this at most: many may ask, and a share of time has to be measured over some time."""


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
        """``device_name``, ``device_memory_bytes`` and ``driver``, its version, where the driver can be asked."""
        if device.type == "cuda":
            properties: Any = torch.cuda.get_device_properties(device)
            self._driver = _driver_figures(library(), f"GPU-{properties.uuid}")
            self.facts = {"device_name": properties.name, "device_memory_bytes": int(properties.total_memory)}
            if self._driver is not None and self._driver.driver:
                self.facts["driver"] = self._driver.driver

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


def _driver_figures(library: Any | None, uuid: str) -> DriverFigures | None:
    if library is None:
        return None
    try:
        return DriverFigures(library, uuid)
    except library.NVMLError:
        with contextlib.suppress(library.NVMLError):
            library.nvmlShutdown()
        return None


class DeviceStageClock(StageClock):
    """A stage clock that also marks every change of stage on the device's own timeline, by an event in the current stream.

    The host's clock says for what the host waited; a kernel runs later than the host asked for it. Between two events lies what
    the device did, or waited for, because of what the host did between them, and all of it together is the time between the
    first event and the last: ``device_seconds`` adds up to the wall's time, but for the few updates that are under way.

    Nothing waits: an event is read once it has happened. ``event`` makes one. One thread, the loop's, enters stages; any may call
    ``device_seconds``.
    """

    __slots__ = ("_device", "_event", "_marks", "_spare")

    def __init__(
        self,
        stages: Sequence[str],
        event: Callable[[], Any] = lambda: torch.cuda.Event(enable_timing=True),  # type: ignore[no-untyped-call]
    ) -> None:
        super().__init__(stages)
        self._event = event
        self._device = dict.fromkeys(self.stages, 0.0)
        self._marks: deque[tuple[str | None, Any]] = deque()
        self._spare: list[Any] = []

    def enter(self, stage: str) -> None:
        """As of ``StageClock``."""
        before = self.current
        super().enter(stage)
        if stage != before:
            self._mark(stage)

    def stop(self) -> None:
        """As of ``StageClock``; what the device does until the next ``enter`` belongs to no stage either."""
        running = self.current is not None
        super().stop()
        if running:
            self._mark(None)

    def device_seconds(self) -> dict[str, float]:
        """Total seconds of the device's time a stage, as far as they have been read."""
        return dict(self._device)

    def of_wall(self) -> float | None:
        """All of the device's time that has been read, as a share of the host's: 1, less what has not been read yet. None at
        first."""
        wall = sum(self.seconds().values())
        return sum(self._device.values()) / wall if wall > 0 else None

    def _mark(self, stage: str | None) -> None:
        event = self._spare.pop() if self._spare else self._event()
        event.record()
        self._marks.append((stage, event))
        while len(self._marks) > 1 and self._marks[1][1].query():
            ended, began = self._marks.popleft()
            if ended is not None:
                self._device[ended] += 1e-3 * began.elapsed_time(self._marks[0][1])
            self._spare.append(began)

"""What the driver says of one NVIDIA device, through NVIDIA's own library (``nvidia-ml-py``, the extra ``[gpu]``)."""

import importlib
import logging
from collections.abc import Callable
from typing import Any

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

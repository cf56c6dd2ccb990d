"""The device that the learner computes on: what the job asks for, what exists, what happens where the two differ, or where its
memory does not suffice; and how the C library keeps what an update frees.

What a GPU is, how busy and how full it is, and where its time goes by the stages of the loop that feeds it. The figures of its
driver come from NVIDIA's own library (``nvidia-ml-py``, the extra ``[gpu]``).
"""

import contextlib
import ctypes
import importlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch

from rljob.api.roles import Accelerator
from rljob.errors import first_line
from rljob.telemetry.clock import StageClock
from rljob.threads import ThreadEnded

log = logging.getLogger(__name__)


class DeviceProblem(Exception):
    """The job asks for a device, and there is none that works. ``str()`` says why, and what to write to go without."""


class DeviceMemoryProblem(Exception):
    """The device's memory has sufficed until now, and no longer does. ``str()`` says what to change."""


class DeviceMemory:
    """Says what to change where a device's memory does not suffice. ``sufficed`` is set once an update has fitted into it, in
    this life of the learner or in one before; ``mirror_bytes`` to what the mirror of the replay holds there."""

    def __init__(self, device: torch.device, params: Any) -> None:
        self._device, self._params = device, params
        self.sufficed = False
        self.mirror_bytes = 0

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Raises, for torch's ``OutOfMemoryError`` inside, ``DeviceProblem`` where no update has fitted yet: it will not when it
        is tried again. Later it is ``DeviceMemoryProblem``: others use the device, and may not always do so. The same where that
        error has ended a thread of the learner's."""
        try:
            yield
        except (torch.OutOfMemoryError, ThreadEnded) as error:
            cause = error.__cause__ if isinstance(error, ThreadEnded) else error
            if not isinstance(cause, torch.OutOfMemoryError):
                raise
            problem = DeviceMemoryProblem if self.sufficed else DeviceProblem
            raise problem(self._what_to_change(first_line(cause))) from error

    def _what_to_change(self, said: str) -> str:
        held = ""
        if self._device.type == "cuda":
            free, total = torch.cuda.mem_get_info(self._device)
            others = max(0, total - free - torch.cuda.memory_reserved(self._device))
            name = torch.cuda.get_device_name(self._device)
            held = f" {name} with {total / 2**30:.1f} GiB, of which other processes hold {others / 2**30:.1f},"
        length = getattr(self._params, "unroll_length", None)
        unroll = "" if length is None else f" or unrollLength (now {length})"
        precision = self._params.precision
        halves = "" if precision in ("BF16", "FP16") else f" precision: BF16 (now {precision}) or"
        smaller = f" a smaller replay.capacity (its mirror there takes {self.mirror_bytes / 2**30:.1f} GiB),"
        mirror = smaller if self.mirror_bytes else ""
        return (
            f"the learner's device{held} is out of memory: write a smaller batchSize (now {self._params.batch_size}){unroll},"
            f"{mirror}{halves} a smaller network, or give the learner a larger device; torch says: {said}"
        )


def why_no_cuda() -> str:
    """Why torch cannot compute on a CUDA device here; empty where it can. It is tried, as a driver that is too old, or a device
    that this build of torch has no code for, shows only then."""
    if torch.version.cuda is None and torch.version.hip is None:
        return "this build of torch computes on CPUs only"
    if not torch.cuda.is_available():
        return "torch finds no CUDA device"
    try:
        (torch.ones(1, device="cuda") + 1).item()
    except RuntimeError as error:
        return f"torch finds a CUDA device and cannot compute on it ({first_line(error)})"
    return ""


def devices(
    accelerator: Accelerator, *, on_cluster: bool, role: str = "learner", why_not: Callable[[], str] = why_no_cuda
) -> tuple[torch.device, ...]:
    """The devices that ``role`` may compute on by ``accelerator``, the one to be preferred first: with several it measures.
    ``why_not`` is asked only where one may be used.

    Raises DeviceProblem where one was asked for, none works, and the job may not go on without.
    """
    wanted = accelerator.count
    asks_for_none = wanted == 0 or (wanted is None and on_cluster)
    reason = f"{role}.accelerator.count asks for no device" if asks_for_none else why_not()
    if not reason:
        measures = accelerator.device == "Auto"
        whether = "on the faster of" if measures else "on"
        log.info(
            "the %s computes %s a %s device%s", role, whether, accelerator.resource_name, " and the CPU" * measures
        )
        return (torch.device("cuda"), *([torch.device("cpu")] if measures else []))
    if not wanted:
        log.info("%s: the %s computes on the CPU", reason, role)
        return (torch.device("cpu"),)
    where = "no such device works in this pod: " if on_cluster else ""
    missing = f"{role}.accelerator asks for {accelerator.resource_name}, but {where}{reason}"
    on_missing = accelerator.on_missing or ("Fail" if on_cluster else "UseCPU")
    if on_missing == "Fail":
        raise DeviceProblem(
            f"{missing}; to compute on the CPU, write {role}.accelerator.onMissing: UseCPU, or count: 0 to ask for none"
        )
    log.warning("%s; the %s computes on the CPU", missing, role)
    return (torch.device("cpu"),)


_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # of glibc's mallopt
_MIB = 1 << 20


def keep_freed_memory() -> None:
    """Let glibc keep what an update frees for the next one, at most 512 MiB. Does nothing with another C library.

    By default it returns memory to the kernel whenever it can, which then clears it anew, page by page: 2,500 page faults in a
    double-DQN update of 32 transitions and 15,000 in an IMPALA update of 640 steps, a sixth of the time of either.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 32 * _MIB)  # the most it allows
        mallopt(_M_TRIM_THRESHOLD, 512 * _MIB)
        mallopt(_M_TOP_PAD, 32 * _MIB)


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

"""The figures of a GPU: read with NVIDIA's own code and types from a stand-in for the driver, and told by the learner."""

import ctypes
import sys
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
import torch
from rljob.learner import device as gpu_module
from rljob.learner.device import FRESH_SECONDS, DriverFigures, Gpu, _driver_figures, nvml

from tests.support.clock import Clock
from tests.support.devices import needs_cuda
from tests.support.waiting import raising

UUID = "GPU-5ea9ed01-2b7c-4a1e-9d5b-0123456789ab"


ANSWERS = {
    "nvmlDeviceGetUtilizationRates": {"gpu": 87, "memory": 41},
    "nvmlDeviceGetPowerUsage": {"value": 412_500},
    "nvmlDeviceGetEnforcedPowerLimit": {"value": 700_000},
    "nvmlGpmQueryDeviceSupport": {"isSupportedDevice": 1},
}
"""The fields that functions fill in of what they are given last."""
CUDA = torch.device("cuda", 0)
MEMORY = {"memory_used_bytes": 70.0, "memory_total_bytes": 100.0, "allocated_bytes": 20.0}


class Driver:
    """A driver's C functions, by name, as the library calls them: each fills in what it is given and returns 0 or an error."""

    def __init__(self) -> None:
        self.answers = dict(ANSWERS)
        self.unknown: set[str] = set()
        """Questions that this device does not answer."""
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        def function(*arguments: Any) -> int:
            self.asked[name] += 1
            if name in self.unknown:
                return pynvml.NVML_ERROR_NOT_SUPPORTED
            for field, value in self.answers.get(name, {}).items():
                setattr(arguments[-1]._obj, field, value)
            own = getattr(type(self), f"_{name}", None)
            return own(self, *arguments) if own else 0

        return function

    @property
    def samples(self) -> int:
        """Those that were made and not freed."""
        return self.asked["nvmlGpmSampleAlloc"] - self.asked["nvmlGpmSampleFree"]

    def _nvmlDeviceGetHandleByUUID(self, uuid: Any, device: Any) -> int:
        return 0 if uuid.value == UUID.encode() else pynvml.NVML_ERROR_NOT_FOUND

    def _nvmlSystemGetDriverVersion(self, text: Any, size: Any) -> int:
        text.value = b"580.159.04"
        return 0

    def _nvmlGpmSampleAlloc(self, sample: Any) -> int:
        sample._obj.contents = pynvml.struct_c_nvmlGpmSample_t()
        return 0

    def _nvmlGpmMetricsGet(self, asked: Any) -> int:
        got = asked._obj
        assert (got.version, got.numMetrics) == (pynvml.NVML_GPM_METRICS_GET_VERSION, 1)
        first, second = (ctypes.cast(sample, ctypes.c_void_p).value for sample in (got.sample1, got.sample2))
        assert None is not first != second, "a sample that was never taken"
        assert got.metrics[0].metricId == pynvml.NVML_GPM_METRIC_SM_UTIL
        got.metrics[0].value = 63.5
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    there = Driver()
    monkeypatch.setattr(pynvml, "nvmlLib", there)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return there


def asked() -> DriverFigures:
    library = nvml()
    assert library is pynvml
    return DriverFigures(library, UUID)


def test_shares_and_watts(driver: Driver) -> None:
    figures = asked()
    assert figures.driver == "580.159.04"
    told = {"utilization": 0.87, "memory_utilization": 0.41, "power_watts": 412.5, "power_limit_watts": 700.0}
    assert figures.figures() == told, "the activity of multiprocessors is that between two looks"
    assert [figures.figures() for _ in range(2)] == [{**told, "sm_activity": 0.635}] * 2
    assert (driver.asked["nvmlGpmSampleGet"], driver.samples) == (3, 2)
    figures.close()
    assert (driver.samples, driver.asked["nvmlShutdown"]) == (0, 1)


def test_a_device_without_counters_is_not_asked_for_them(driver: Driver) -> None:
    driver.answers["nvmlGpmQueryDeviceSupport"] = {"isSupportedDevice": 0}
    figures = asked()
    assert all("sm_activity" not in figures.figures() for _ in range(2))
    assert driver.asked["nvmlGpmSampleAlloc"] == driver.asked["nvmlGpmSampleGet"] == 0


@pytest.mark.parametrize(
    ("question", "left_out"),
    [
        ("nvmlDeviceGetUtilizationRates", {"utilization", "memory_utilization"}),
        ("nvmlDeviceGetPowerUsage", {"power_watts"}),
        ("nvmlDeviceGetEnforcedPowerLimit", {"power_limit_watts"}),
        ("nvmlGpmQueryDeviceSupport", {"sm_activity"}),
        ("nvmlGpmSampleGet", {"sm_activity"}),
        ("nvmlGpmMetricsGet", {"sm_activity"}),
    ],
)
def test_what_a_device_does_not_know_is_left_out(driver: Driver, question: str, left_out: set[str]) -> None:
    every = {"utilization", "memory_utilization", "power_watts", "power_limit_watts", "sm_activity"}
    driver.unknown.add(question)
    figures = asked()
    figures.figures()
    assert figures.figures().keys() == every - left_out


def test_another_device_is_an_error(driver: Driver) -> None:
    with pytest.raises(pynvml.NVMLError):
        DriverFigures(pynvml, "GPU-00000000-0000-0000-0000-000000000000")


def test_without_a_driver_or_the_package_there_is_nothing_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    monkeypatch.setattr(pynvml, "nvmlInitWithFlags", raising(missing))
    assert nvml() is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml() is None


def test_a_driver_that_does_not_know_the_device_is_asked_nothing_more(driver: Driver) -> None:
    driver.unknown = {"nvmlDeviceGetHandleByUUID"}
    assert _driver_figures(nvml(), UUID) is None
    assert driver.asked["nvmlShutdown"] == 1


class Figures:
    """Stands in for ``DriverFigures``, which has tests of its own."""

    driver = "580.159.04"

    def __init__(self, library: Any, uuid: str) -> None:
        assert uuid == "GPU-5ea9"
        self.asked = 0
        self.closed = False

    def figures(self) -> dict[str, float]:
        self.asked += 1
        return {"utilization": 0.1 * self.asked}

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(name="NVIDIA H100 80GB HBM3", total_memory=100, uuid="5ea9")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (30, 100))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 20)
    monkeypatch.setattr(gpu_module, "DriverFigures", Figures)


def test_a_cpu_has_nothing_to_say(closes: Any) -> None:
    gpu = closes(Gpu(torch.device("cpu")))
    assert gpu.facts == gpu.figures() == {}


@pytest.mark.usefixtures("card")
def test_name_memory_driver_and_figures() -> None:
    clock = Clock(0.0)
    gpu = Gpu(CUDA, library=object, clock=clock)
    assert gpu.facts == {
        "device_name": "NVIDIA H100 80GB HBM3", "device_memory_bytes": 100, "driver": "580.159.04"
    }  # fmt: skip
    assert gpu.figures() == {**MEMORY, "utilization": 0.1}
    clock.now = FRESH_SECONDS / 2
    assert gpu.figures() == {**MEMORY, "utilization": 0.1}, "many may ask; the driver is asked now and then"
    clock.now = 1.5 * FRESH_SECONDS
    assert gpu.figures() == {**MEMORY, "utilization": 0.2}
    gpu.close()
    clock.now = 2.5 * FRESH_SECONDS
    assert gpu.figures() == MEMORY


@pytest.mark.usefixtures("card")
def test_without_the_driver_s_library_memory_is_known_all_the_same() -> None:
    gpu = Gpu(CUDA, library=lambda: None)
    assert gpu.facts == {"device_name": "NVIDIA H100 80GB HBM3", "device_memory_bytes": 100}
    assert gpu.figures() == MEMORY


@needs_cuda
def test_of_the_gpu_that_is_here(closes: Any) -> None:
    gpu = closes(Gpu(torch.device("cuda")))
    assert gpu.facts["device_name"] == torch.cuda.get_device_name()
    assert (nvml() is None) != bool(gpu.facts.get("driver"))
    figures = gpu.figures()
    assert 0.0 < figures["memory_used_bytes"] <= figures["memory_total_bytes"]

"""What the learner says of its GPU; without one, by a stand-in for torch's answers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rljob.learner import gpu as gpu_module
from rljob.learner.gpu import FRESH_SECONDS, Gpu, kernel_module_version

from tests.support.clock import Clock
from tests.support.devices import needs_cuda

CUDA = torch.device("cuda", 0)
MEMORY = {"memory_used_bytes": 70.0, "memory_total_bytes": 100.0, "allocated_bytes": 20.0}


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


def test_a_cpu_has_nothing_to_say() -> None:
    gpu = Gpu(torch.device("cpu"))
    assert gpu.facts == gpu.figures() == {}
    gpu.close()


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
def test_without_the_driver_s_library_memory_is_known_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_module, "kernel_module_version", lambda: "")
    gpu = Gpu(CUDA, library=lambda: None)
    assert gpu.facts == {"device_name": "NVIDIA H100 80GB HBM3", "device_memory_bytes": 100}
    assert gpu.figures() == MEMORY


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (None, ""),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Fri Aug  1 10:00:00 UTC 2026\nGCC 13\n", "580.159.04"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n", "580.159.04"),
        ("nothing of the kind", ""),
    ],
)  # fmt: skip
def test_the_kernel_module_s_version(tmp_path: Path, text: str | None, version: str) -> None:
    if text is not None:
        (tmp_path / "version").write_text(text)
    assert kernel_module_version(tmp_path / "version") == version


@needs_cuda
def test_of_the_gpu_that_is_here() -> None:
    gpu = Gpu(torch.device("cuda"))
    assert gpu.facts["device_name"] == torch.cuda.get_device_name()
    assert gpu.facts["driver"]
    figures = gpu.figures()
    assert 0.0 < figures["memory_used_bytes"] <= figures["memory_total_bytes"]
    gpu.close()

"""What the learner says of its GPU; without one, by a stand-in for the driver's answers."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from rljob.learner.gpu import gpu_figures


def test_a_cpu_has_no_gpu_figures() -> None:
    assert gpu_figures(torch.device("cpu")) == {}


@pytest.mark.parametrize("with_nvml", [True, False])
def test_memory_always_and_utilization_where_the_driver_can_be_asked(
    with_nvml: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (30, 100))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 20)
    monkeypatch.setattr(torch.cuda, "utilization", lambda device: 75)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if with_nvml else None)
    expected = {"memory_used_bytes": 70.0, "allocated_bytes": 20.0} | ({"utilization": 0.75} if with_nvml else {})
    assert gpu_figures(torch.device("cuda", 0)) == expected

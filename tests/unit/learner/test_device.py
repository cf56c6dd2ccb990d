"""Which device a learner computes on, by what its job asks for, what is there, and where it runs."""

from __future__ import annotations

import logging

import pytest
import torch
from rljob.api.roles import Accelerator
from rljob.learner import device
from rljob.learner.device import DeviceProblem, choose, why_no_cuda

NOTHING = "torch finds no CUDA device"


def chosen(*, cluster: bool, there: bool = False, **written: object) -> str:
    """The kind of device; ``there``: one that works."""
    return choose(Accelerator(**written), on_cluster=cluster, why_not=lambda: "" if there else NOTHING).type  # type: ignore[arg-type]


@pytest.mark.parametrize("cluster", [False, True])
def test_a_device_that_was_asked_for_and_is_there_is_used(cluster: bool) -> None:
    for on_missing in (None, "Fail", "UseCPU"):
        assert chosen(cluster=cluster, there=True, count=1, on_missing=on_missing) == "cuda"


def test_where_nothing_is_said_one_machine_uses_what_is_there_and_a_cluster_what_was_asked_for() -> None:
    assert chosen(cluster=False, there=True) == "cuda"
    assert chosen(cluster=False, there=False) == "cpu"
    assert chosen(cluster=True, there=True) == "cpu", "nothing was reserved for it"
    assert chosen(cluster=True, there=False) == "cpu"


@pytest.mark.parametrize("cluster", [False, True])
def test_none_at_all_means_the_cpu_and_no_device_is_touched(cluster: bool) -> None:
    def touched() -> str:
        raise AssertionError("it would take memory of a device that it does not use")

    for on_missing in (None, "Fail", "UseCPU"):
        accelerator = Accelerator(count=0, on_missing=on_missing)  # type: ignore[arg-type]
        assert choose(accelerator, on_cluster=cluster, why_not=touched).type == "cpu"


@pytest.mark.parametrize(("cluster", "on_missing"), [(True, None), (True, "Fail"), (False, "Fail")])
def test_a_missing_device_ends_the_learner_with_what_to_change(cluster: bool, on_missing: str | None) -> None:
    with pytest.raises(DeviceProblem) as caught:
        chosen(cluster=cluster, count=1, on_missing=on_missing, resource_name="example.com/gpu")
    assert str(caught.value) == (
        f"learner.accelerator asks for example.com/gpu, but {NOTHING}; to compute on the CPU, write "
        "learner.accelerator.onMissing: UseCPU, or count: 0 to ask for none"
    )


@pytest.mark.parametrize(("cluster", "on_missing"), [(False, None), (True, "UseCPU"), (False, "UseCPU")])
def test_a_missing_device_is_a_warning(cluster: bool, on_missing: str | None, caplog: pytest.LogCaptureFixture) -> None:
    assert chosen(cluster=cluster, count=1, on_missing=on_missing) == "cpu"
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert (
        record.message == f"learner.accelerator asks for nvidia.com/gpu, but {NOTHING}; the learner computes on the CPU"
    )


def test_a_build_without_cuda_and_a_machine_without_a_device_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    assert why_no_cuda() == "this build of torch computes on CPUs only"
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert why_no_cuda() == NOTHING


def test_a_device_on_which_nothing_can_be_computed_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*sizes: int, device: str) -> torch.Tensor:
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nsecond line")

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(device.torch, "ones", broken)
    assert why_no_cuda() == (
        "torch finds a CUDA device and cannot compute on it "
        "(CUDA error: no kernel image is available for execution on the device)"
    )

"""Which devices a learner may compute on, by what its job asks for and what is there; and how its memory is used again."""

import ctypes
import logging
import subprocess
import sys
from typing import Any

import pytest
import torch
from rljob.api import ApeXDQNParameters, ImpalaParameters
from rljob.api.roles import Accelerator
from rljob.learner import device
from rljob.learner.device import DeviceMemory, DeviceMemoryProblem, DeviceProblem, devices, why_no_cuda
from rljob.threads import SupervisedThread, ThreadEnded

from tests.support.devices import needs_cuda
from tests.support.waiting import raising

NOTHING = "torch finds no CUDA device"
CUDA = torch.device("cuda")
# In a process of its own, whose allocator nothing else has touched: every turn wants 96 MiB in four pieces.
_FAULTS = """
import os, resource
import numpy as np
from rljob.learner.device import keep_freed_memory
for prepare in (lambda: None, keep_freed_memory):
    if child := os.fork():
        os.waitpid(child, 0)
        continue
    prepare()
    for turn in range(6):
        if turn == 1:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        pieces = [np.full(3 << 20, 1.0) for _ in range(4)]
        del pieces
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, flush=True)
    os._exit(0)
"""


def chosen(*, cluster: bool, there: bool = False, **written: object) -> str:
    """The kinds of devices that may be used; ``there``: one that works."""
    found = devices(Accelerator.model_validate(written), on_cluster=cluster, why_not=lambda: "" if there else NOTHING)
    return " or ".join(device.type for device in found)


@pytest.mark.parametrize(
    ("cluster", "there", "written", "expected"),
    [
        *(
            (cluster, True, {"count": 1, "on_missing": on_missing, **more}, kinds)
            for cluster in (False, True)
            for on_missing in (None, "Fail", "UseCPU")
            for more, kinds in (({}, "cuda or cpu"), ({"device": "Accelerator"}, "cuda"))  # measured: which is faster
        ),
        # Where nothing is said, one machine uses what is there, and a cluster what was asked for.
        (False, True, {}, "cuda or cpu"),
        (False, True, {"device": "Accelerator"}, "cuda"),
        (False, False, {"device": "Accelerator"}, "cpu"),
        (False, False, {}, "cpu"),
        (True, True, {}, "cpu"),
        (True, False, {}, "cpu"),
    ],
)
def test_a_device_is_used_where_it_is_there_and_was_asked_for_or_is_the_machines(
    cluster: bool, there: bool, written: dict[str, object], expected: str
) -> None:
    assert chosen(cluster=cluster, there=there, **written) == expected


@pytest.mark.parametrize("cluster", [False, True])
@pytest.mark.parametrize("on_missing", [None, "Fail", "UseCPU"])
def test_none_at_all_means_the_cpu_and_no_device_is_touched(cluster: bool, on_missing: Any) -> None:
    found = devices(
        Accelerator(count=0, on_missing=on_missing),
        on_cluster=cluster,
        why_not=lambda: pytest.fail("it would take memory of a device that it does not use"),
    )
    assert found == (torch.device("cpu"),)


@pytest.mark.parametrize(
    ("cluster", "there", "count", "said"),
    [
        (True, True, None, "learner.accelerator.count asks for no device: the learner computes on the CPU"),
        (False, True, 0, "learner.accelerator.count asks for no device: the learner computes on the CPU"),
        (False, False, None, f"{NOTHING}: the learner computes on the CPU"),
        (True, True, 1, "the learner computes on the faster of a nvidia.com/gpu device and the CPU"),
    ],
)
def test_the_log_says_on_what_a_learner_computes(
    cluster: bool, there: bool, count: int | None, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        chosen(cluster=cluster, there=there, count=count)
    assert [record.message for record in caplog.records] == [said]


@pytest.mark.parametrize(("cluster", "on_missing"), [(True, None), (True, "Fail"), (False, "Fail")])
def test_a_missing_device_ends_the_learner_with_what_to_change(cluster: bool, on_missing: str | None) -> None:
    with pytest.raises(DeviceProblem) as caught:
        chosen(cluster=cluster, count=1, on_missing=on_missing, resource_name="example.com/gpu")
    where = "no such device works in this pod: " if cluster else ""
    assert str(caught.value) == (
        f"learner.accelerator asks for example.com/gpu, but {where}{NOTHING}; to compute on the CPU, write "
        "learner.accelerator.onMissing: UseCPU, or count: 0 to ask for none"
    )


def test_an_inference_server_names_its_own_field() -> None:
    with pytest.raises(DeviceProblem, match=r"^inference\.accelerator asks .* write inference\.accelerator\.onMissing"):
        devices(Accelerator(count=1), on_cluster=True, role="inference", why_not=lambda: NOTHING)


@pytest.mark.parametrize(("cluster", "on_missing"), [(False, None), (True, "UseCPU"), (False, "UseCPU")])
def test_a_missing_device_is_a_warning(cluster: bool, on_missing: str | None, caplog: pytest.LogCaptureFixture) -> None:
    assert chosen(cluster=cluster, count=1, on_missing=on_missing) == "cpu"
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    where = "no such device works in this pod: " if cluster else ""
    asked = "learner.accelerator asks for nvidia.com/gpu"
    assert record.message == f"{asked}, but {where}{NOTHING}; the learner computes on the CPU"


def test_a_build_without_cuda_and_a_machine_without_a_device_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    assert why_no_cuda() == "this build of torch computes on CPUs only"
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert why_no_cuda() == NOTHING


def test_a_device_on_which_nothing_can_be_computed_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    no_kernel = RuntimeError("CUDA error: no kernel image is available for execution on the device\nsecond line")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(device.torch, "ones", raising(no_kernel))
    assert why_no_cuda() == (
        "torch finds a CUDA device and cannot compute on it "
        "(CUDA error: no kernel image is available for execution on the device)"
    )


def out_of_memory(memory: DeviceMemory, more: str = "") -> str:
    """What is told where torch says so; one sentence."""
    with pytest.raises(DeviceMemoryProblem if memory.sufficed else DeviceProblem) as caught, memory.explained():
        raise torch.OutOfMemoryError(f"CUDA out of memory.{more}")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("params", "sufficed", "changes"),
    [
        (ApeXDQNParameters(batch_size=512), False, ["batchSize (now 512),", "precision: BF16 (now Auto)"]),
        (ImpalaParameters(batch_size=32, unroll_length=20), False, ["or unrollLength (now 20),"]),
        (ApeXDQNParameters(batch_size=512), True, ["batchSize (now 512),"]),
    ],
)
def test_memory_that_does_not_suffice_says_what_to_change(params: Any, sufficed: bool, changes: list[str]) -> None:
    memory = DeviceMemory(torch.device("cpu"), params)
    memory.sufficed = sufficed
    said = out_of_memory(memory, " Tried to allocate 2.00 GiB.\nand a page more")
    assert said.startswith("the learner's device is out of memory: write a smaller batchSize ")
    assert all(change in said for change in changes)
    assert said.endswith("torch says: CUDA out of memory. Tried to allocate 2.00 GiB.")


@pytest.mark.parametrize("precision", ["BF16", "FP16"])
def test_what_is_so_already_is_no_advice(precision: str) -> None:
    said = out_of_memory(DeviceMemory(torch.device("cpu"), ApeXDQNParameters.model_validate({"precision": precision})))
    assert "precision" not in said
    assert "write a smaller batchSize (now 512), a smaller network, or give" in said


def of_a_thread(error: Exception) -> None:
    """Have it end a thread, and raised where that thread is looked at."""
    thread = SupervisedThread("prefetch", raising(error))
    thread.start()
    thread.close()
    thread.check()


def test_a_thread_that_found_no_memory_is_explained_and_one_that_ended_otherwise_is_not() -> None:
    memory = DeviceMemory(torch.device("cpu"), ApeXDQNParameters())
    with pytest.raises(DeviceProblem, match=r"torch says: CUDA out of memory\.$"), memory.explained():
        of_a_thread(torch.OutOfMemoryError("CUDA out of memory."))
    with pytest.raises(ThreadEnded, match="thread prefetch has ended: KeyError: 'x'"), memory.explained():
        of_a_thread(KeyError("x"))


def test_a_mirror_that_takes_part_of_it_is_named() -> None:
    memory = DeviceMemory(torch.device("cpu"), ApeXDQNParameters())
    memory.mirror_bytes = 19 << 30
    assert ", a smaller replay.capacity (its mirror there takes 19.0 GiB), precision: BF16" in out_of_memory(memory)


def test_who_holds_the_memory_of_a_gpu_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2 << 30, 80 << 30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 18 << 30)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100")
    held = "device NVIDIA H100 with 80.0 GiB, of which other processes hold 60.0, is out of memory"
    assert held in out_of_memory(DeviceMemory(CUDA, ApeXDQNParameters()))


@needs_cuda
def test_a_gpu_that_is_asked_for_too_much_says_so() -> None:
    with pytest.raises(DeviceProblem, match="is out of memory"), DeviceMemory(CUDA, ApeXDQNParameters()).explained():
        torch.empty(1 << 50, dtype=torch.uint8, device=CUDA)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="another C library")
def test_freed_memory_is_not_fetched_again() -> None:
    done = subprocess.run([sys.executable, "-c", _FAULTS], check=True, capture_output=True, text=True)
    default, kept = map(int, done.stdout.split())
    assert kept < 100 < default, "each piece has 6,144 pages"

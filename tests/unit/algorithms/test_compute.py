"""Ways of computing: which there are, and which one is taken."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from rljob.algorithms.compute import (
    Arithmetic,
    Compute,
    DeviceCompute,
    candidates,
    fastest,
    native_arithmetic,
    processor_has,
    told,
)

PLAIN, ORDERED, ROUNDED = Compute(), Compute(channels_last=True), Compute("bf16")


class Track:
    """Runs that take the time they are told to, on a clock of their own; the last one again and again."""

    def __init__(self, seconds: dict[Compute, list[float]]) -> None:
        self.now = 0.0
        self.seconds = seconds
        self.run: list[Compute] = []

    def fastest(self, budget: float) -> Any:
        return fastest({plan: partial(self._taking, plan) for plan in self.seconds}, lambda: self.now, budget)

    def _taking(self, plan: Compute) -> None:
        self.run.append(plan)
        left = self.seconds[plan]
        self.now += left.pop(0) if len(left) > 1 else left[0]


GPU: tuple[Arithmetic, ...] = ("fp32", "tf32", "bf16", "fp16")
FP32: tuple[Arithmetic, ...] = ("fp32",)


def test_candidates() -> None:
    images = {"convolutional": True, "blocks": True}
    assert candidates("FP32", convolutional=False, blocks=False, native=GPU) == (PLAIN,)
    assert len(candidates("Auto", **images, native=("fp32", "bf16"))) == 6
    assert candidates("Plain", **images, native=GPU) == (PLAIN,)
    assert not any(plan.half for plan in candidates("Auto", **images, native=FP32))
    assert all(plan.half for plan in candidates("BF16", **images, native=FP32))
    assert not any(plan.space_to_depth for plan in candidates("BF16", convolutional=True, blocks=False, native=GPU))


@pytest.mark.parametrize(
    ("precision", "native", "tried"),
    [
        ("Auto", GPU, ["fp32", "tf32", "bf16"]),  # a range that gradients leave is for those who ask for it
        ("Auto", ("fp32", "fp16"), ["fp32"]),
        ("TF32", GPU, ["tf32"]),
        ("FP16", GPU, ["fp16"]),
        ("TF32", FP32, ["fp32"]),
        ("FP16", ("fp32", "bf16"), ["fp32"]),
        ("FP32", GPU, ["fp32"]),
    ],
)
def test_what_each_precision_tries(precision: str, native: tuple[Arithmetic, ...], tried: list[Arithmetic]) -> None:
    assert [
        plan.arithmetic for plan in candidates(precision, native=native, convolutional=False, blocks=False)
    ] == tried


def test_what_devices_compute_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    assert native_arithmetic(torch.device("cpu"))[0] == "fp32"
    for capability, expected in (((9, 0), GPU), ((8, 6), GPU), ((7, 5), ("fp32", "fp16")), ((6, 1), FP32)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, answer=capability: answer)
        assert native_arithmetic(torch.device("cuda")) == expected


@pytest.mark.parametrize(("ordered", "expected"), [(0.97, PLAIN), (0.90, ORDERED)])
def test_the_fastest_is_taken_if_it_is_clearly_faster(ordered: float, expected: Compute) -> None:
    assert Track({PLAIN: [1.0], ORDERED: [ordered]}).fastest(4.0)[0] == expected


def test_preparation_and_interruptions_do_not_count() -> None:
    plan, seconds = Track({PLAIN: [0.05, 0.010], ORDERED: [0.09, 0.009, 0.2, 0.008], ROUNDED: [0.01, 0.009]}).fastest(
        1.0
    )
    assert plan == ORDERED
    assert told(seconds) == "fp32 10.00 ms, fp32 channels-last 8.00 ms, bf16 9.00 ms"


def test_what_is_far_behind_is_not_run_again() -> None:
    track = Track({PLAIN: [3.0], ORDERED: [1.0], ROUNDED: [1.2]})
    assert track.fastest(10.0)[0] == ORDERED
    assert track.run.count(PLAIN) == 1
    assert track.run.count(ORDERED) == track.run.count(ROUNDED) > 2
    assert track.now < 10.0 + 3.0


def test_a_long_first_run_is_dropped_at_once_where_another_has_long_ended() -> None:
    track = Track({PLAIN: [0.05, 0.002], ORDERED: [3.0]})
    assert track.fastest(1.0) == (PLAIN, {PLAIN: pytest.approx(0.002), ORDERED: 3.0})
    assert track.run == [PLAIN, ORDERED, PLAIN], "what is left is timed without its preparation"


def test_a_device_is_preferred_unless_the_cpu_is_clearly_faster() -> None:
    there, here = DeviceCompute(torch.device("cuda"), ROUNDED), DeviceCompute(torch.device("cpu"), PLAIN)
    for seconds, expected in ((0.97, there), (0.90, here), (1.8, there)):
        track = Track({there: [1.0], here: [seconds]})  # type: ignore[dict-item]
        assert track.fastest(1.0)[0] == expected
    assert (str(there), str(here)) == ("cuda bf16", "cpu fp32")


def test_a_single_way_is_not_run_at_all() -> None:
    track = Track({PLAIN: [1.0]})
    assert (track.fastest(1.0), track.run) == ((PLAIN, {}), [])


def test_bf16_is_looked_up_in_the_processor_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    has = partial(processor_has, "avx512_bf16", "amx_bf16", cpuinfo=cpuinfo)
    assert not has()
    for flags, expected in (("fpu avx2 avx512f", False), ("fpu avx512_bf16 avx2", True)):
        cpuinfo.write_text(f"processor: 0\nflags\t\t: {flags}\n")
        assert has() is expected
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert not has(), "torch was told to do without"

"""How a network is computed on one machine: precision and order in memory. No part of its weights, nor of their meaning."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar

import torch

Arithmetic = Literal["fp32", "tf32", "bf16", "fp16"]
"""What products are computed in. ``tf32`` rounds what is multiplied to 10 bits after the point and adds up in float32;
``bf16`` has 7 of them and float32's range, ``fp16`` 10 and a range that gradients leave, so that its loss is scaled."""

_HALVES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}

Way = TypeVar("Way", bound=Hashable)

_CLEAR_GAIN = 0.95  # of the plainest plan's time: noise must not decide about rounding
_FAR_BEHIND = 1.5
_LONG_SECONDS = 0.1
_MOST_ROUNDS = 30


@contextmanager
def denormals_as_zero() -> Iterator[None]:
    """Float32 numbers below 1.2e-38 count as zero in this thread meanwhile, and in those that it starts, where the processor can.

    Adam's mean of a gradient that has become zero (a unit that no longer fires) falls to the smallest such number and stays
    there, for 0.9 of it rounds to itself, and arithmetic with one takes a hundred times as long: after 1,200 updates of a Nature
    network on Pong a tenth of its means were such, and a step of the optimiser took three times its time. Every role
    that computes for training does it, so that they go on agreeing to the last bit.
    """
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@dataclass(frozen=True, slots=True)
class Compute:
    """Switches of ``FrameNetwork.compute``. ``arithmetic``: of the trunk. ``channels_last``: order in memory of what its
    convolutions see. ``space_to_depth``: the first of them sees blocks of pixels as channels, in channels-last order."""

    arithmetic: Arithmetic = "fp32"
    channels_last: bool = False
    space_to_depth: bool = False

    @property
    def half(self) -> torch.dtype | None:
        """The type of 16 bits that the trunk is stored and computed in; None where it is float32."""
        return _HALVES.get(self.arithmetic)

    def __str__(self) -> str:
        order = " space-to-depth" if self.space_to_depth else " channels-last" if self.channels_last else ""
        return self.arithmetic + order


def candidates(
    precision: str, *, native: Sequence[Arithmetic], convolutional: bool, blocks: bool
) -> tuple[Compute, ...]:
    """The compute plans that ``precision`` (Auto, FP32, TF32, BF16, FP16) allows and that may be the fastest, plainest first.

    ``native``: what the device computes itself, plainest first (``native_arithmetic``). Auto tries all of it but fp16, whose
    range must be asked for. TF32 and FP16 are of GPUs: a device without them takes fp32. BF16 is obeyed everywhere.
    ``convolutional``: the network has convolutions. ``blocks``: its first one may see blocks of pixels as channels.
    """
    plans: list[Compute] = []
    for arithmetic in _allowed(precision, native):
        plans.append(Compute(arithmetic))
        if convolutional:
            plans.append(Compute(arithmetic, channels_last=True))
        if blocks:
            plans.append(Compute(arithmetic, channels_last=True, space_to_depth=True))
    return tuple(plans)


def _allowed(precision: str, native: Sequence[Arithmetic]) -> list[Arithmetic]:
    if precision == "Auto":
        return [each for each in native if each != "fp16"]
    wanted: Arithmetic = {"FP32": "fp32", "TF32": "tf32", "BF16": "bf16", "FP16": "fp16"}[precision]  # type: ignore[assignment]
    return [wanted if wanted == "bf16" or wanted in native else "fp32"]


def native_arithmetic(device: torch.device) -> tuple[Arithmetic, ...]:
    """What ``device`` computes in hardware, plainest first."""
    if device.type != "cuda":
        return ("fp32", "bf16") if native_bf16() else ("fp32",)
    if torch.version.hip is not None:
        return ("fp32", "bf16", "fp16")
    major, _ = torch.cuda.get_device_capability(device)
    if major >= 8:  # since Ampere
        return ("fp32", "tf32", "bf16", "fp16")
    return ("fp32", "fp16") if major == 7 else ("fp32",)


def let_round_to_tf32(arithmetic: Arithmetic) -> None:
    """Whether products of float32 on CUDA may be rounded to tf32 from now on: in tf32 all of them, else none.

    For the whole process, the heads' products too. Left alone, torch rounds those of convolutions and no others. These are the
    older of torch's two sets of switches: the compiler still reads them, and fails where the newer ones were set.
    """
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = arithmetic == "tf32"


def fastest(
    runs: Mapping[Way, Callable[[], object]], clock: Callable[[], float], budget_seconds: float
) -> tuple[Way, str]:
    """The fastest of some ways to do the same, and what was measured, for a log. ``runs``: one run of each, plainest first.

    They take turns for about ``budget_seconds`` of ``clock`` and at least two rounds; one that is far behind drops out. The
    best time of each counts: what else happens on a machine only ever makes a run slower. A way other than the plainest must be
    clearly faster to be taken.
    """
    plainest = next(iter(runs))
    best = dict.fromkeys(runs, float("inf"))
    racing, spent, rounds = list(runs), 0.0, 0
    while len(racing) > 1 and (rounds < 2 or (spent < budget_seconds and rounds < _MOST_ROUNDS)):
        for plan in racing:
            start = clock()
            runs[plan]()
            elapsed = clock() - start
            spent += elapsed
            if rounds > 0 or elapsed > _LONG_SECONDS:  # a short first run is mostly preparation
                best[plan] = min(best[plan], elapsed)
        leader = min(best.values())
        racing = [plan for plan in racing if best[plan] < _FAR_BEHIND * leader or best[plan] == float("inf")]
        rounds += 1
    plan = min(best, key=best.__getitem__)
    if best[plan] > _CLEAR_GAIN * best[plainest]:
        plan = plainest
    return plan, ", ".join(f"{each} {1e3 * seconds:.2f} ms" for each, seconds in best.items() if len(runs) > 1)


def native_bf16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether this processor multiplies bf16 numbers in hardware (AVX-512 BF16 or AMX) and torch may let it.

    False where that is unknown, and where ``ATEN_CPU_CAPABILITY`` holds torch to older instructions.
    """
    if torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2"):
        return False
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return False
    flags = next((line.split(":", 1)[1].split() for line in lines if line.startswith("flags")), [])
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(flags)

"""How a network is computed on one machine: precision and order in memory. No part of its weights, nor of their meaning."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import torch

Arithmetic = Literal["fp32", "tf32", "bf16", "fp16", "int8"]
"""What products are computed in. ``tf32`` rounds what is multiplied to 10 bits after the point and adds up in float32;
``bf16`` has 7 of them and float32's range, ``fp16`` 10 and a range that gradients leave, so that its loss is scaled.
``int8`` is of acting alone (``rljob.acting.network``)."""

_HALVES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}

Way = TypeVar("Way", bound=Hashable)

_CLEAR_GAIN = 0.95  # of the first way's time: noise must not decide about rounding, nor about a device
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


@dataclass(frozen=True, slots=True)
class DeviceCompute:
    """Where a network is computed, and how."""

    device: torch.device
    compute: Compute

    def __str__(self) -> str:
        return f"{self.device} {self.compute}"


@dataclass(frozen=True, slots=True)
class Measured:
    """The place that was taken, and the seconds that each one took that was tried, by its words: none where there was one."""

    place: DeviceCompute
    seconds: Mapping[str, float]

    def document(self) -> dict[str, Any]:
        """What a role's status says of it."""
        return {"compute": str(self.place), "compute_seconds": dict(self.seconds)}


def candidates(
    precision: str, *, native: Sequence[Arithmetic], convolutional: bool, blocks: bool
) -> tuple[Compute, ...]:
    """The compute plans that ``precision`` (of a manifest) allows and that may be the fastest, plainest first.

    ``native``: what the device computes itself, plainest first (``native_arithmetic``). Auto tries all of it but fp16, whose
    range must be asked for. TF32 and FP16 are of GPUs: a device without them takes fp32. BF16 is obeyed everywhere. Plain is one
    that needs no measurement.
    ``convolutional``: the network has convolutions. ``blocks``: its first one may see blocks of pixels as channels.
    """
    if precision == "Plain":
        return (Compute(),)
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
        # Where the processor multiplies bf16 numbers in hardware and torch may let it.
        return ("fp32", "bf16") if processor_has("avx512_bf16", "amx_bf16") else ("fp32",)
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
) -> tuple[Way, Mapping[Way, float]]:
    """The fastest of some ways to do the same, or the first where none is clearly faster, and the best seconds of each; none
    where there is only one, which is not run.

    ``runs``: one run of each, the one to be preferred first. They take turns for about ``budget_seconds`` of ``clock`` and at
    least two rounds; one that is far behind drops out. The best time of each counts: what else happens on a machine only ever
    makes a run slower.
    """
    if len(runs) == 1:
        return next(iter(runs)), {}
    best = dict.fromkeys(runs, inf)
    racing, spent, rounds, leader = list(runs), 0.0, 0, inf
    while any(best[plan] == inf for plan in racing) or (
        len(racing) > 1 and (rounds < 2 or (spent < budget_seconds and rounds < _MOST_ROUNDS))
    ):
        for plan in racing:
            start = clock()
            runs[plan]()
            elapsed = clock() - start
            spent += elapsed
            leader = min(leader, elapsed)
            if rounds > 0 or elapsed > _LONG_SECONDS:  # a short first run is mostly preparation
                best[plan] = min(best[plan], elapsed)
        racing = [plan for plan in racing if best[plan] < _FAR_BEHIND * leader or best[plan] == inf]
        rounds += 1
    first, least = next(iter(best)), min(best, key=best.__getitem__)
    return least if best[least] <= _CLEAR_GAIN * best[first] else first, best


def told(seconds: Mapping[Way, float]) -> str:
    """What was measured, for a log."""
    return ", ".join(f"{each} {1e3 * taken:.2f} ms" for each, taken in seconds.items())


def processor_has(*any_of: str, cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether this processor has one of these extensions of AVX-512 or AMX, by the names that Linux has for them.

    False where that is unknown, and where ``ATEN_CPU_CAPABILITY`` holds torch to older instructions.
    """
    if torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2"):
        return False
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return False
    flags = next((line.split(":", 1)[1].split() for line in lines if line.startswith("flags")), [])
    return not set(any_of).isdisjoint(flags)

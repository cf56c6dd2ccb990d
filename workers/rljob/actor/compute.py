"""How this actor's processor computes this network fastest: chosen by a short measurement, not by a table.

Half-precision helps only where the processor multiplies bf16 numbers natively, and then by how much depends on the
network and the batch. So a few forward passes of every candidate are timed, interleaved, on the real input shape.
"""

from __future__ import annotations

import copy
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

log = logging.getLogger(__name__)

_ROUNDS = 15
# A candidate must beat plain fp32 by this factor: below it, less rounding is worth more than the time.
_WORTHWHILE_GAIN = 1.05


@dataclass(frozen=True, slots=True)
class Compute:
    """Switches of ``QNetwork.compute``: the precision of its trunk and the memory layout of its convolutions."""

    bf16: bool = False
    channels_last: bool = False

    def __str__(self) -> str:
        return ("bf16" if self.bf16 else "fp32") + (", channels last" if self.channels_last else "")


def native_bf16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether this processor multiplies bf16 numbers in hardware (AVX-512 BF16 or AMX) and torch may let it.

    False where nobody can tell, and where ``ATEN_CPU_CAPABILITY`` holds torch to older instructions.
    """
    if torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2"):
        return False
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return False
    flags = next((line.split(":", 1)[1].split() for line in lines if line.startswith("flags")), [])
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(flags)


def choose_compute(network: nn.Module, observation: Tensor, precision: str) -> Compute:
    """The fastest way to evaluate ``network`` on ``observation`` (a batch as the actor will see it); logs the decision.

    ``precision`` is the job's: FP32 and BF16 are obeyed and only the layout is measured; Auto lets bf16 compete where
    the processor has it. Measured in CPU time of this thread, which alone computes in an actor: other processes on the
    core must not decide. ``network`` is not changed.
    """
    precisions = {"FP32": [False], "BF16": [True]}.get(precision) or ([False, True] if native_bf16() else [False])
    candidates = [Compute(bf16, channels_last) for bf16 in precisions for channels_last in (False, True)]
    copies = [acting_copy(network, candidate) for candidate in candidates]
    best = [float("inf")] * len(candidates)
    with torch.inference_mode():
        for _ in range(_ROUNDS):
            for index, module in enumerate(copies):
                started = time.thread_time()
                module(observation)
                best[index] = min(best[index], time.thread_time() - started)
    fastest = min(range(len(best)), key=best.__getitem__)
    chosen = fastest if best[0] > _WORTHWHILE_GAIN * best[fastest] else 0
    measured = ", ".join(f"{c}: {1e3 * seconds:.2f} ms" for c, seconds in zip(candidates, best, strict=True))
    log.info("inference in %s (%s for a batch of %d)", candidates[chosen], measured, len(observation))
    return candidates[chosen]


def acting_copy(network: Any, compute: Compute) -> nn.Module:
    """A working copy of ``network`` (a ``FrameNetwork``) that only acts, computing as ``compute`` says."""
    chosen = copy.deepcopy(network).compute(bf16=compute.bf16, channels_last=compute.channels_last)
    acting: nn.Module = chosen.working_copy().requires_grad_(False).eval()
    return acting


def copy_weights(source: nn.Module, target: nn.Module) -> None:
    """Bring ``target``, an ``acting_copy`` of ``source``, up to date; its precision and layout stay."""
    state = source.state_dict()
    with torch.no_grad():
        for name, tensor in target.state_dict().items():
            tensor.copy_(state[name])

"""How the trunk is computed on this machine: float32 or bf16, rows or channels last. Measured, not guessed.

bf16 halves an update where the processor multiplies it natively (AVX-512 bf16, AMX, a GPU); where it is emulated an update takes
six times as long, so that trying it alone would hold up the start by half a minute. Channels-last helps some convolutions and
hurts others. So the learner times the job's own update for a moment, in bf16 only where that is native.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from rljob.actor.compute import native_bf16

log = logging.getLogger(__name__)

CLEAR_GAIN = 0.95  # a plan must take at most this share of the plain one's time: noise must not decide about rounding


@dataclass(frozen=True, slots=True)
class Plan:
    """``bf16``: trunk in bf16 autocast. ``channels_last``: memory layout of its convolutions."""

    bf16: bool = False
    channels_last: bool = False

    def __str__(self) -> str:
        return f"{'bf16' if self.bf16 else 'fp32'}{' channels-last' if self.channels_last else ''}"


def candidates(precision: str, *, convolutional: bool, native: bool) -> tuple[Plan, ...]:
    """The plans that ``precision`` (Auto, FP32, BF16) allows, plainest first. ``native``: the device multiplies bf16 itself."""
    kinds = {"Auto": (False, True) if native else (False,), "FP32": (False,), "BF16": (True,)}[precision]
    layouts = (False, True) if convolutional else (False,)
    return tuple(Plan(bf16, layout) for bf16 in kinds for layout in layouts)


def choose(
    precision: str,
    network: nn.Module,
    update: Callable[[nn.Module, Any], None],
    batch: Any,
    budget_seconds: float = 1.2,
) -> Plan:
    """The fastest allowed plan for ``update(network copy, batch)`` within about ``budget_seconds`` of trying.

    ``network`` itself is not changed. A plan other than the plainest must be clearly faster to be taken.
    """
    convolutional = len(getattr(network, "convolutions", ())) > 0
    native = next(network.parameters()).is_cuda or native_bf16()
    plans = candidates(precision, convolutional=convolutional, native=native)
    if len(plans) == 1:
        return plans[0]
    seconds = {plan: _time(plan, network, update, batch, budget_seconds / len(plans)) for plan in plans}
    fastest = min(plans, key=seconds.__getitem__)
    chosen = fastest if seconds[fastest] < CLEAR_GAIN * seconds[plans[0]] else plans[0]
    timings = ", ".join(f"{plan} {1e3 * each:.1f} ms" for plan, each in seconds.items())
    log.info("precision %s: computing in %s; an update took %s", precision, chosen, timings)
    return chosen


def _time(
    plan: Plan, network: nn.Module, update: Callable[[nn.Module, Any], None], batch: Any, budget_seconds: float
) -> float:
    """Seconds of the fastest of a few updates; the first, which warms up, does not count unless it took all the time."""
    trial = copy.deepcopy(network)
    trial.compute(bf16=plan.bf16, channels_last=plan.channels_last)  # type: ignore[operator]
    best, spent, rounds = float("inf"), 0.0, 0
    while rounds < 2 or (spent < budget_seconds and rounds < 50):
        start = time.perf_counter()
        update(trial, batch)
        if next(network.parameters()).is_cuda:
            torch.cuda.synchronize()
        elapsed = time.perf_counter() - start
        spent, rounds = spent + elapsed, rounds + 1
        best = min(best, elapsed) if rounds > 1 else best
    return best

"""How this actor's processor computes this network fastest: chosen by a short measurement, not by a table.

bf16 helps only where the processor multiplies bf16 numbers natively, and then by how much depends on the
network and the batch. So every candidate acts a few times, interleaved, on the real input shape, and is timed.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rljob.algorithms.compute import Compute, fastest, native_arithmetic
from rljob.algorithms.trunk import FrameNetwork
from rljob.observation import rows_of

log = logging.getLogger(__name__)

_BUDGET_SECONDS = 0.5


def choose_compute(
    network: FrameNetwork,
    infer: Callable[[Any, Any, Tensor], object],
    observation: Any,
    units: int,
    precision: str,
) -> Compute:
    """The fastest way to act with ``network`` on ``observation`` (a batch as the actor will see it); logs the decision.

    ``infer`` and ``units``, of its memory, are the algorithm's: a user's own may evaluate a network otherwise than by calling
    it. ``precision`` is the job's: what it allows here (``candidates``) is obeyed, the order in memory measured, and Auto lets
    bf16 compete where the processor has it. Measured in CPU time of this thread, which alone computes in an actor: other
    processes on the core must not decide. ``network`` is not changed.
    """
    plans = network.compute_plans(precision, native=native_arithmetic(torch.device("cpu")))
    rows = rows_of(observation)
    memory = torch.zeros((rows, 2, units))
    with torch.inference_mode():
        runs = {plan: partial(infer, acting_copy(network, plan), observation, memory) for plan in plans}
        chosen, timings = fastest(runs, time.thread_time, _BUDGET_SECONDS)
    log.info("inference in %s (%s for a batch of %d)", chosen, timings or "the only way", rows)
    return chosen


def acting_copy(network: FrameNetwork, compute: Compute) -> FrameNetwork:
    """A working copy of ``network`` that only acts, computing as ``compute`` says."""
    chosen = copy.deepcopy(network).compute(compute)
    return chosen.working_copy().requires_grad_(False).eval()


def copy_weights(source: nn.Module, target: nn.Module) -> None:
    """Bring ``target``, an ``acting_copy`` of ``source``, up to date; its precision and layout stay."""
    state = source.state_dict()
    with torch.no_grad():
        for name, tensor in target.state_dict().items():
            tensor.copy_(state[name])

"""Where and how a network acts fastest: chosen by a short measurement, not by a table.

A device helps where its gain is more than the way to it and back, bf16 only where the processor multiplies bf16 numbers natively,
and by how much depends on the network and the batch. So every candidate acts a few times, interleaved, on the real input shape,
and is timed.
"""

import copy
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rljob.acting.int8 import Int8Trunk, computable
from rljob.algorithms.compute import (
    Compute,
    Measured,
    Place,
    choose,
    fastest,
    let_round_to_tf32,
    native_arithmetic,
    told,
)
from rljob.algorithms.decision import Inference
from rljob.algorithms.suits import NOT_IN_INT8
from rljob.algorithms.trunk import FrameNetwork
from rljob.api.networks import NetworkProblem
from rljob.observation import arrays_of, each, rows_of

log = logging.getLogger(__name__)

_BUDGET_SECONDS = 0.5
_CPU = torch.device("cpu")
_INT8 = Place(_CPU, Compute("int8"))


def choose_compute(
    network: FrameNetwork,
    infer: Callable[[Any, Any, Tensor], Inference],
    observation: Any,
    units: int,
    precision: str,
    devices: Sequence[torch.device] = (_CPU,),
    *,
    own: str | None = None,
) -> Measured:
    """Where, and in which way, to act with ``network`` on ``observation``, a batch as it will be seen, where it will be; logged.

    ``infer`` and ``units``, of its memory, are the algorithm's: a user's own may evaluate a network otherwise than by calling
    it. ``precision`` is the job's: what it allows (``candidates``) is obeyed, the order in memory measured, and Auto lets what
    each device multiplies natively compete. ``own``, where it is given, is that of acting and stands in its place: with Auto
    int8 competes on a CPU, and INT8 is taken without a measurement (NetworkProblem where it can't be).
    ``devices``: the one to be preferred first. Observations are taken there and what comes out is taken back, on the clock. On
    CPUs alone that is the CPU time of this thread, which alone computes in an actor: other processes on the core must not
    decide. ``network`` is not changed.
    """
    if own == "INT8":
        if not computable(network):
            raise NetworkProblem(NOT_IN_INT8)
        return Measured(_INT8, {})
    home, rows = arrays_of(observation)[0].device, rows_of(observation)
    memory = torch.zeros((rows, 2, units), device=home)
    cuda = any(device.type == "cuda" for device in (home, *devices))

    def run(place: Place, acting: FrameNetwork) -> None:
        if place.device.type == "cuda":
            let_round_to_tf32(place.compute.arithmetic)
        taken_there = each(lambda part: part.to(place.device), observation)
        for part in infer(acting, taken_there, memory.to(place.device)):
            part.to(home)
        if cuda:
            torch.cuda.synchronize()

    with torch.inference_mode():
        runs = {}
        for device in devices:
            for plan in network.compute_plans(own or precision, native=native_arithmetic(device)):
                runs[Place(device, plan)] = partial(run, Place(device, plan), acting_copy(network, plan).to(device))
        floats = [*runs]
        if own == "Auto" and _CPU in devices and computable(network):
            trunk = Int8Trunk(acting_copy(network, Compute()))
            trunk.calibrate(each(lambda part: part.to(_CPU), observation))
            trunk.quantize()
            runs[_INT8] = partial(run, _INT8, trunk.network)
        chosen, seconds = fastest(runs, time.perf_counter if cuda else time.thread_time, _BUDGET_SECONDS)
    on_cpu = {place: seconds[place] for place in floats if place.device == _CPU} if chosen == _INT8 else {}
    otherwise = choose(on_cpu).compute if on_cpu else Compute()
    if chosen.device.type == "cuda":
        let_round_to_tf32(chosen.compute.arithmetic)
    log.info("inference on %s (%s for a batch of %d)", chosen, told(seconds) or "the only way", rows)
    return Measured(chosen, {str(place): taken for place, taken in seconds.items()}, otherwise)


def acting_copy(network: FrameNetwork, compute: Compute) -> FrameNetwork:
    """A working copy of ``network`` that only acts, computing as ``compute`` says."""
    chosen = copy.deepcopy(network).compute(compute)
    return chosen.working_copy().requires_grad_(False).eval()

"""How the trunk is computed on this machine: in float32, tf32 or 16 bits, and in which memory format. Measured, not guessed.

bf16 halves an update where the processor multiplies it natively (AVX-512 bf16, AMX, a GPU); where it is emulated an update takes
six times as long, so that trying it alone would hold up the start by half a minute. Channels-last helps some convolutions and
hurts others; blocks of pixels as channels halve the time of a first convolution on some processors. So the learner times the
job's own update for a moment, in bf16 only where that is native.

On a GPU whose kernels a CUDA graph will start, the updates are timed as graphs: started one by one, kernels of a few microseconds
take as long in any arithmetic as the host takes to start them.
"""

import copy
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from rljob.algorithms.compute import Compute, Measured, Place, fastest, let_round_to_tf32, native_arithmetic, told
from rljob.algorithms.trunk import FrameNetwork
from rljob.errors import first_line
from rljob.learner.optim.captured_update import cuda_graph

log = logging.getLogger(__name__)


def choose(
    precision: str,
    network: FrameNetwork,
    update: Callable[[FrameNetwork, Any], None],
    batch: Any,
    budget_seconds: float = 2.0,
    *,
    as_graphs: bool = False,
) -> Measured:
    """The fastest allowed way to compute ``update(network copy, batch)`` where ``network`` is; ``network`` is not changed.

    ``as_graphs``: each way is timed as a CUDA graph, of all that can be captured.

    On a GPU at least one update is tried: what it took of the memory there is torch's from then on, and what is free is free.
    """
    device = next(network.parameters()).device
    plans = network.compute_plans(precision, native=native_arithmetic(device))

    def run(trial: FrameNetwork) -> None:
        if device.type == "cuda":
            let_round_to_tf32(trial.plan.arithmetic)
        update(trial, batch)

    runs: dict[Compute, Callable[[], object]]
    runs = {plan: partial(run, copy.deepcopy(network).compute(plan)) for plan in plans}
    if device.type == "cuda":
        runs = {plan: partial(_finished, _replayed(each) if as_graphs else each) for plan, each in runs.items()}
        if len(runs) == 1:
            runs[plans[0]]()
    chosen, seconds = fastest(runs, time.perf_counter, budget_seconds)
    log.info(
        "precision %s: computing in %s%s", precision, chosen, f"; an update took {told(seconds)}" if seconds else ""
    )
    return Measured(Place(device, chosen), {str(Place(device, plan)): taken for plan, taken in seconds.items()})


def _finished(work: Callable[[], object]) -> None:
    work()
    torch.cuda.synchronize()


def _replayed(work: Callable[[], object]) -> Callable[[], object]:
    """A CUDA graph of ``work``; itself, where there can be none."""
    try:
        return cuda_graph(work)[1]
    except RuntimeError as error:
        log.info("an update is timed without a CUDA graph, for it can't be captured: %s", first_line(error))
        return work

"""How the kernels of an update are started on a GPU: one by one, or all at once as a CUDA graph. Measured, not guessed.

An update has hundreds of kernels. Where they are short, the host that starts them takes longer than they do. A graph is used
only where it was seen to learn what the update itself learns, and to be faster; whatever speaks against it is logged once, in the
log, and the learner goes on without.
"""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch

from rljob.algorithms.compute import fastest, told
from rljob.errors import first_line
from rljob.learner.optim.captured_update import CapturedUpdate, Capturer, cuda_graph
from rljob.learner.optim.readback import DEPTH
from rljob.learner.optim.update_trial import KeptState, differences, first_minibatch, outcome
from rljob.learner.optim.updater import AnyUpdater

log = logging.getLogger(__name__)

TOLERANCE: Final = 0.01
"""So much of what is learned (and of each other outcome) may differ in a graph. One that reads a single column of
an old batch was off by 0.05 to 0.36 in tests, one with an old learning rate, an old batch or a lost step by 0.4 and more."""
OF_NOISE: Final = 4.0
"""So many times as much as an update differs from itself may be added to that: kernels may add up in any order."""

_ONE_BY_ONE, _AS_A_GRAPH = "one by one", "as a CUDA graph"
_WITHOUT = "the kernels of an update are started %s, without a CUDA graph: %s"


class CaptureProblem(Exception):
    """There is no graph of an update that can be used. ``str()`` says why."""


def wanted(device: torch.device, compiled: bool | None) -> bool:
    """Whether a graph is tried on ``device``. ``compiled``: the job's ``compile``, None where it is left open."""
    return device.type == "cuda" and compiled is not False


def captured_and_checked(
    updater: AnyUpdater, batch: Any, capture: Capturer = cuda_graph
) -> tuple[CapturedUpdate[Any], float]:
    """A graph of the updates that ``batch``, a whole one, is learned from; and the largest of its ``differences`` from them.

    ``updater`` is as it was afterwards, and does not use the graph. Raises CaptureProblem.
    """
    kept = KeptState(updater)
    minibatch = first_minibatch(updater, batch)

    def tried(way: CapturedUpdate[Any] | None) -> dict[str, torch.Tensor]:
        kept.put_back()
        updater.captured = way
        return outcome(updater, minibatch)

    try:
        updater.learn(minibatch, 0)
        if not torch.equal(torch.get_rng_state(), kept.random):
            raise CaptureProblem("its loss draws random numbers on the host, which a graph would use again and again")
        plain, again = tried(None), tried(None)
        if not plain["online"].any():
            raise CaptureProblem("three updates on trial moved no weight, so that a graph can't be compared with them")
        try:
            captured: CapturedUpdate[Any] = CapturedUpdate(updater.compute, minibatch, capture)
            replayed = tried(captured)
        except RuntimeError as error:
            raise CaptureProblem(f"it can't be captured ({first_line(_origin(error))})") from error
    finally:
        updater.captured = None
        kept.put_back()
    noise, found = differences(plain, again), differences(plain, replayed)
    for name, difference in found.items():
        allowed = TOLERANCE + OF_NOISE * noise[name]
        if not difference <= allowed:
            apart = f"by {difference:.2g} of it, where {allowed:.2g} is allowed"
            raise CaptureProblem(f"replayed, updates differ in what became of: {name} ({apart})")
    return captured, max(found.values())


def choose(
    updater: AnyUpdater,
    batch: Any,
    capture: Capturer = cuda_graph,
    clock: Callable[[], float] = time.perf_counter,
    budget_seconds: float = 1.0,
) -> None:
    """Let ``updater`` replay its updates from now on where that is clearly faster for ``batch``, a whole one of the job's shape.

    The updater has learned nothing from it afterwards. One sentence in the log says what was chosen, and why.
    """
    updater.captured = _measured(updater, batch, capture, clock, budget_seconds)
    if updater.device.type == "cuda":
        torch.cuda.empty_cache()  # of what the way that was not chosen has held


def _measured(
    updater: AnyUpdater, batch: Any, capture: Capturer, clock: Callable[[], float], budget_seconds: float
) -> CapturedUpdate[Any] | None:
    try:
        captured, difference = captured_and_checked(updater, batch, capture)
    except CaptureProblem as problem:
        log.warning(_WITHOUT, _ONE_BY_ONE, problem)
        return None
    kept, minibatch = KeptState(updater), first_minibatch(updater, batch)

    def run(way: CapturedUpdate[Any] | None) -> None:
        updater.captured = way
        for _ in range(DEPTH):  # as far as the host may be ahead
            updater.learn(minibatch, 0)
        if updater.device.type == "cuda":
            torch.cuda.synchronize()

    ways: dict[str, CapturedUpdate[Any] | None] = {_ONE_BY_ONE: None, _AS_A_GRAPH: captured}
    try:
        chosen, seconds = fastest({name: partial(run, way) for name, way in ways.items()}, clock, budget_seconds)
    except torch.OutOfMemoryError:  # what fits by itself may not fit beside a graph
        log.warning(_WITHOUT, _ONE_BY_ONE, "the device's memory does not hold an update and its graph at once")
        return None
    finally:
        updater.captured = None
        kept.put_back()
    log.info(
        "the kernels of an update are started %s; %d updates took %s, and what the graph learns differs by %.2g of it",
        chosen, DEPTH, told(seconds), difference,
    )  # fmt: skip
    return ways[chosen]


def _origin(error: BaseException) -> BaseException:
    """What went wrong first: after a failure inside a capture, its end fails too, and says less."""
    while error.__context__ is not None:
        error = error.__context__
    return error

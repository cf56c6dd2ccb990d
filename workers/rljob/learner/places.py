"""On which device a learner makes its updates: whole ones are timed on each, as each makes them best.

A network's arithmetic alone would tell too little: on a GPU a small update is mostly the starting of its kernels, which a graph
takes away, and on a CPU the optimiser and the job's cores count.
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, NamedTuple

import torch

from rljob.algorithms.compute import Measured, Place, fastest, told
from rljob.learner.optim.data_parallel_threads import DataParallelThreads
from rljob.learner.optim.update_trial import KeptState, first_minibatch
from rljob.learner.optim.updater import AnyUpdater

log = logging.getLogger(__name__)

HOPELESS: Final = 4.0
"""So many times as long as a whole update on the first device a plain one may take on the second, for its other ways to be tried:
no order in memory and no arithmetic of 16 bits makes up for more."""
_LONG_SECONDS: Final = 0.5
_BUDGET_SECONDS: Final = 1.0


class Ready(NamedTuple):
    """An updater on one device, in the way that is fastest there. ``example`` makes a whole batch of the job's shape."""

    updater: AnyUpdater
    measured: Measured
    threads: DataParallelThreads
    example: Callable[[], Any]


def choose(
    devices: Sequence[torch.device],
    ready: Callable[[torch.device], Ready],
    trial: Callable[[torch.device], object],
    clock: Callable[[], float] = time.perf_counter,
) -> Ready:
    """``ready`` of the device where updates are faster, with the seconds of one on each; of an only one without that.

    ``devices``: one, or two, the one to be preferred first. ``trial`` makes a plain update, without an optimiser. No updater has
    learned anything afterwards.
    """
    first = ready(devices[0])
    if len(devices) == 1:
        return first
    with ExitStack() as trials:
        place = Place(devices[0], first.measured.place.compute)
        ways, runs = {place: first}, {place: _updates(first, trials)}
        took = min(_timed(runs[place], clock) for _ in range(3))
        plain = _timed(partial(trial, devices[1]), clock)
        if plain > max(_LONG_SECONDS, HOPELESS * took):
            seconds = {str(place): took, f"{devices[1]}, tried once": plain}
        else:
            other = ready(devices[1])
            place = Place(devices[1], other.measured.place.compute)
            ways[place], runs[place] = other, _updates(other, trials)
            place, measured = fastest(runs, clock, _BUDGET_SECONDS)
            seconds = {str(each): taken for each, taken in measured.items()}
    log.info("the learner computes on %s: an update took %s", place, told(seconds))
    if place.device.type == "cpu" and devices[0].type == "cuda":
        torch.cuda.empty_cache()
    return ways[place]._replace(measured=Measured(place, seconds))


def _updates(ready: Ready, trials: ExitStack) -> Callable[[], None]:
    """One whole update, whose traces go when ``trials`` end."""
    trials.callback(KeptState(ready.updater).put_back)
    minibatch = first_minibatch(ready.updater, ready.example())

    def update() -> None:
        ready.updater.learn(minibatch, 0)
        if ready.updater.device.type == "cuda":
            torch.cuda.synchronize()

    return update


def _timed(run: Callable[[], object], clock: Callable[[], float]) -> float:
    begun = clock()
    run()
    return clock() - begun

"""A short update on a CPU is compiled in the course of training, and computed so from then on where that is clearly faster.

An update of a small network is mostly what torch needs to start its operations, which a compiler takes away. The compiler needs
ten seconds and more, in which training stands still: while it traces, it changes for the whole process how modules are called
(pytorch#112775), so that no other thread may call one. A job therefore trains for longer than that first. What speaks against it
is logged, and the learner goes on as it was.
"""

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from rljob.algorithms.compute import fastest, told
from rljob.errors import UsageError
from rljob.learner.optim.update_trial import differences, first_minibatch
from rljob.learner.optim.updater import AnyUpdater

log = logging.getLogger(__name__)

AFTER_SECONDS: Final = 60.0
"""So long a job has made updates when its update is compiled: many that learn a small task are over by then, and others mostly
last for several times as long."""
SHORT_SECONDS: Final = 0.003
"""An update that takes longer computes for most of it. On one core one of HalfCheetah's PPO took 1.1 ms, and 0.67 compiled; one
of its SAC 10.4 ms, and 13.8 compiled."""
TOLERANCE: Final = 0.01
"""By so much of its length a gradient may differ: a compiler adds up in another order."""
_BUDGET_SECONDS: Final = 0.3


def has_compiler() -> bool:
    """Whether there is the C++ compiler that torch looks for."""
    return shutil.which(_compiler()) is not None


def check_compiler(device: torch.device) -> None:
    """Raises UsageError where an update for ``device`` cannot be compiled, as there is no compiler."""
    if device.type == "cpu" and not has_compiler():
        raise UsageError(
            f"compile: true needs the C++ compiler {_compiler()}, which is not found here; install it (the worker image has "
            "none), or take compile out of the algorithm's parameters"
        )


def _compiler() -> str:
    return os.environ.get("CXX", "g++")


class CompiledLater:
    """Call it at every turn of the loop, between two updates. ``example`` makes a whole batch of the job's shape; ``clock``
    counts seconds and only goes forward."""

    def __init__(
        self, updater: AnyUpdater, example: Callable[[], Any], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._updater, self._example, self._clock = updater, example, clock
        self._turns = self._course(updater.updates)

    def __call__(self) -> None:
        """Do what is due: one of all turns takes as long as the compiler."""
        next(self._turns, None)

    def _course(self, begun_at: int) -> Iterator[None]:
        updater = self._updater
        while updater.updates == begun_at:
            yield
        due = self._clock() + AFTER_SECONDS
        while self._clock() < due:
            yield
        minibatch = first_minibatch(updater, self._example())
        plain, compiled = updater.twin(), updater.twin()
        if min(_seconds(plain, minibatch) for _ in range(5)) > SHORT_SECONDS:
            return
        compiled.compile()
        log.info("an update is compiled; training stands still meanwhile")
        try:
            found = _learned(compiled, minibatch)
        except Exception:  # a compiler raises what it will, and training goes on without one
            log.warning("an update stays as it was: it can't be compiled", exc_info=True)
            return
        apart = differences(_learned(plain, minibatch), found)
        if not max(apart.values()) <= TOLERANCE:
            log.warning("an update stays as it was: compiled, these differ: %s", apart)
            return
        ways = {"as it was": plain, "compiled": compiled}
        runs = {name: partial(_learned, way, minibatch) for name, way in ways.items()}
        chosen, seconds = fastest(runs, time.perf_counter, _BUDGET_SECONDS)
        if ways[chosen] is compiled:
            updater.compute_as(compiled)
        log.info("an update is computed %s from now on; without the optimiser it took %s", chosen, told(seconds))


def _learned(updater: AnyUpdater, minibatch: Any) -> dict[str, Tensor]:
    result, gradient = updater.differentiated(minibatch)
    return {"loss": result.value.detach()[None], "gradient": torch.cat([each.float().flatten() for each in gradient])}


def _seconds(updater: AnyUpdater, minibatch: Any) -> float:
    began = time.perf_counter()
    updater.differentiated(minibatch)
    return time.perf_counter() - began

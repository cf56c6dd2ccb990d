"""A learner or a replay service that is slower than its machine, so that tests see the others follow it and say so.

Python imports this file by itself where its folder is on PYTHONPATH. ``TEST_LEARNER_DELAY_FILE`` and
``TEST_REPLAY_DELAY_FILE`` name files that hold a number of seconds: each turn of that role's loop that did work then takes
so much longer, and a file is read again twice a second. A turn that did nothing is not delayed, so that waiting stays waiting in
the stage clock. A file that is missing, or holds no number, delays nothing.
"""

import os
import time
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

LEARNER_DELAY_FILE = "TEST_LEARNER_DELAY_FILE"
REPLAY_DELAY_FILE = "TEST_REPLAY_DELAY_FILE"
_READ_AGAIN_SECONDS = 0.5


def delay_seconds(path: Path) -> float:
    """What a delay file says: 0 to 60 seconds; 0 where it is missing or says nothing."""
    try:
        return min(60.0, max(0.0, float(path.read_text())))
    except (OSError, ValueError):
        return 0.0


def slower(path: Path, work: Callable[[], int], on_turn: Callable[[], None]) -> Callable[[], None]:
    """``on_turn``, and the delay after a turn in which ``work``, a count of what was done, has grown."""
    done, seconds, next_read = 0, 0.0, 0.0

    def turn() -> None:
        nonlocal done, seconds, next_read
        on_turn()
        now, before, done = time.monotonic(), done, work()
        if now >= next_read:
            next_read, seconds = now + _READ_AGAIN_SECONDS, delay_seconds(path)
        if done > before and seconds > 0:
            time.sleep(seconds)

    return turn


def _slow_learner(module: Any, path: Path) -> None:
    run = module.Learner.run

    def slow(learner: Any, stop: Any, on_turn: Callable[[], None] = lambda: None) -> None:
        run(learner, stop, slower(path, lambda: learner._updater.updates, on_turn))

    module.Learner.run = slow


def _slow_replay(module: Any, path: Path) -> None:
    run = module.ReplayService.run

    def slow(service: Any, stop: Any) -> None:
        service.on_turn = slower(path, lambda: service.sampling.batches_total, service.on_turn)
        run(service, stop)

    module.ReplayService.run = slow


_OF = {
    "rljob.learner.loop": (LEARNER_DELAY_FILE, _slow_learner),
    "rljob.replay.service": (REPLAY_DELAY_FILE, _slow_replay),
}
_execute = SourceFileLoader.exec_module


def _exec_module(self: SourceFileLoader, module: Any) -> None:
    _execute(self, module)
    variable, slow = _OF.get(module.__name__, ("", None))
    if slow is not None and variable in os.environ:
        slow(module, Path(os.environ[variable]))


if __name__ == "sitecustomize":
    SourceFileLoader.exec_module = _exec_module  # type: ignore[method-assign]

"""A test hook: a learner or a replay service that is slower than its machine, to see the others follow it and say so.

Set ``RLJOB_TEST_LEARNER_DELAY_FILE`` or ``RLJOB_TEST_REPLAY_DELAY_FILE`` to the path of a file that holds a number of seconds.
Each turn of that role's loop that did work then takes so much longer; the file is read again twice a second, so a test can
change it while training goes on. Without the variable nothing is added to the loop, and a file that is missing or no number
delays nothing. Not for use outside tests.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

LEARNER_DELAY_FILE: Final = "RLJOB_TEST_LEARNER_DELAY_FILE"
REPLAY_DELAY_FILE: Final = "RLJOB_TEST_REPLAY_DELAY_FILE"
_READ_AGAIN_SECONDS = 0.5


def slowed_down(variable: str, work: Callable[[], int], on_turn: Callable[[], None]) -> Callable[[], None]:
    """``on_turn``, which a role's loop calls in each turn, or a slower one where the environment has ``variable``.

    ``work`` counts what the loop has done: a turn that did nothing is not delayed, so that waiting stays waiting in the
    stage clock.
    """
    path = os.environ.get(variable)
    return _Slowdown(Path(path), work, on_turn) if path else on_turn


class _Slowdown:
    def __init__(self, path: Path, work: Callable[[], int], on_turn: Callable[[], None]) -> None:
        self._path, self._work, self._on_turn = path, work, on_turn
        self._seconds = 0.0
        self._next_read = 0.0
        self._done = 0

    def __call__(self) -> None:
        self._on_turn()
        now, done = time.monotonic(), self._work()
        if now >= self._next_read:
            self._next_read = now + _READ_AGAIN_SECONDS
            self._seconds = delay_seconds(self._path)
        if done > self._done and self._seconds > 0:
            time.sleep(self._seconds)
        self._done = done


def delay_seconds(path: Path) -> float:
    """What a delay file says: 0 to 60 seconds; 0 where it is missing or says nothing."""
    try:
        return min(60.0, max(0.0, float(path.read_text())))
    except (OSError, ValueError):
        return 0.0

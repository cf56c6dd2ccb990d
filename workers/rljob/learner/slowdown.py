"""A test hook: a learner that is slower than its machine, to see actors follow it down and up again.

Set ``RLJOB_TEST_UPDATE_DELAY_FILE`` to the path of a file that holds a number of seconds. Each update then takes so much longer;
the file is read again twice a second, so a test can change it while training goes on. Without the variable nothing is added
to the loop, and a file that is missing or no number delays nothing. Not for use outside tests.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

DELAY_FILE_VARIABLE: Final = "RLJOB_TEST_UPDATE_DELAY_FILE"
_READ_AGAIN_SECONDS = 0.5


def slowed_down(updates: Callable[[], int], on_turn: Callable[[], None]) -> Callable[[], None]:
    """``on_turn``, which the learner's loop calls before each batch, or a slower one where the hook is set.

    ``updates`` counts the learner's updates: a turn that did none (no batch came) is not delayed, so that waiting stays
    waiting in the stage clock.
    """
    path = os.environ.get(DELAY_FILE_VARIABLE)
    if not path:
        return on_turn
    return _Slowdown(Path(path), updates, on_turn)


class _Slowdown:
    def __init__(self, path: Path, updates: Callable[[], int], on_turn: Callable[[], None]) -> None:
        self._path, self._updates, self._on_turn = path, updates, on_turn
        self._seconds = 0.0
        self._next_read = 0.0
        self._done = 0

    def __call__(self) -> None:
        self._on_turn()
        now, done = time.monotonic(), self._updates()
        if now >= self._next_read:
            self._next_read = now + _READ_AGAIN_SECONDS
            self._seconds = _seconds(self._path)
        if done > self._done and self._seconds > 0:
            time.sleep(self._seconds)
        self._done = done


def _seconds(path: Path) -> float:
    try:
        return min(60.0, max(0.0, float(path.read_text())))
    except (OSError, ValueError):
        return 0.0

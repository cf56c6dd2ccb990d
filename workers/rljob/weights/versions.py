"""Which update each published version of the weights came after, so that the age of experience can be told in updates."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

KEPT: Final = 10_000
"""Versions that are remembered, the newest."""


class VersionLog:
    """Written by the training loop, read by any thread. ``interval``: updates between two versions, for those long forgotten."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        # Version v has row v % KEPT. ``_at``: the update that it came after. ``_shared``: the newest update that its weights have
        # in common with the present ones; less than ``_at`` once the run has gone back behind it.
        self._version = np.full(KEPT, -1)
        self._at, self._shared = np.zeros(KEPT, np.int64), np.zeros(KEPT, np.int64)
        self._began_at = 0
        self.updates = 0
        self.version = 0

    def begin(self, updates: int) -> None:
        """The learner starts, or goes on, with so many updates made: those that it may have made beyond are given up."""
        np.minimum(self._shared, updates, out=self._shared)
        self._began_at = self.updates = updates

    def note(self, version: int, updates: int) -> None:
        """``version`` has been published after ``updates`` updates."""
        row = version % KEPT
        self._at[row] = self._shared[row] = updates
        self._version[row] = version
        self.version, self.updates = version, updates

    def age(self, version: int) -> int:
        """``ages`` of one version."""
        return int(self.ages(np.array(version)))

    def ages(self, versions: NDArray[np.int64]) -> NDArray[Any]:
        """Updates between the weights of each version and the present ones, int64 of the same shape, never negative.

        Those are the updates made since it was published; where the run has gone back to a checkpoint behind it, the ones
        that were given up and those made since then. Version 0, no weights at all, dates from the learner's start.
        """
        row, updates = versions % KEPT, self.updates
        known = self._at[row] + updates - 2 * self._shared[row]
        forgotten = np.maximum(0, self.version - versions) * self._interval
        ages = np.where(self._version[row] == versions, known, forgotten)
        return np.where(versions == 0, updates - self._began_at, ages)

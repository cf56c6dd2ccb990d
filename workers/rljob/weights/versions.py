"""Which update each published version of the weights came after, so that the age of experience can be told in updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEPT = 10_000


@dataclass(slots=True)
class _Published:
    """``at``: the update that a version came after. ``shared``: the newest update that its weights have in common with the
    present ones; less than ``at`` once the run has gone back behind it."""

    at: int
    shared: int


class VersionLog:
    """Written by the training loop, read by any thread. ``interval``: updates between two versions, for those long forgotten."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._published: dict[int, _Published] = {}
        self._began_at = 0
        self.updates = 0
        self.version = 0

    def begin(self, updates: int) -> None:
        """The learner starts, or goes on, with so many updates made: those that it may have made beyond are given up."""
        for published in list(self._published.values()):
            published.shared = min(published.shared, updates)
        self._began_at = self.updates = updates

    def note(self, version: int, updates: int) -> None:
        """``version`` has been published after ``updates`` updates."""
        self._published[version] = _Published(updates, updates)
        self.version, self.updates = version, updates
        if len(self._published) > KEPT:
            del self._published[next(iter(self._published))]

    def age(self, version: int) -> int:
        """Updates between the weights of ``version`` and the present ones, never negative.

        Those are the updates made since it was published; where the run has gone back to a checkpoint behind it, the ones
        that were given up and those made since then. Version 0, no weights at all, dates from the learner's start.
        """
        if version == 0:
            return self.updates - self._began_at
        published = self._published.get(version)
        if published is None:
            return max(0, self.version - version) * self._interval
        return (published.at - published.shared) + (self.updates - published.shared)

    def ages(self, versions: NDArray[np.int64]) -> NDArray[Any]:
        """``age`` of every version, in the same shape."""
        different, inverse = np.unique(versions, return_inverse=True)
        return np.array([self.age(int(version)) for version in different], np.int64)[inverse].reshape(versions.shape)

"""Which update each published version of the weights came after, so that the age of experience can be told in updates."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

KEPT = 10_000


class VersionLog:
    """Written by the training loop, read by any thread. ``interval``: updates between two versions, for those long forgotten."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._updates_at: dict[int, int] = {}
        self._began_at = 0
        self.updates = 0
        self.version = 0

    def begin(self, updates: int) -> None:
        """The learner starts, or goes on, with so many updates made."""
        self._began_at = self.updates = updates

    def note(self, version: int, updates: int) -> None:
        """``version`` has been published after ``updates`` updates."""
        self._updates_at[version] = updates
        self.version, self.updates = version, updates
        if len(self._updates_at) > KEPT:
            del self._updates_at[next(iter(self._updates_at))]

    def age(self, version: int) -> int:
        """Updates made since ``version`` was published. Version 0, no weights at all, dates from the learner's start."""
        if version == 0:
            return self.updates - self._began_at
        at = self._updates_at.get(version)
        return self.updates - at if at is not None else max(0, self.version - version) * self._interval

    def ages(self, versions: NDArray[np.int64]) -> NDArray[Any]:
        """``age`` of every version, in the same shape."""
        different, inverse = np.unique(versions, return_inverse=True)
        return np.array([self.age(int(version)) for version in different], np.int64)[inverse].reshape(versions.shape)

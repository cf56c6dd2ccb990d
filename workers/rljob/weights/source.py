"""Where those that act get weights from, whatever way they come."""

from __future__ import annotations

from typing import Protocol

from rljob.weights.flat import Weights


class WeightSource(Protocol):
    """A client of the learner in another process, or the learner's own weights in the same one."""

    @property
    def answered(self) -> bool:
        """Whether the learner has said yet which weights there are, if any."""

    def poll(self) -> Weights | None:
        """Newly arrived weights, or None; at once."""

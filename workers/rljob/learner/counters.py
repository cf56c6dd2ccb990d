"""How far a training has come: what checkpoints keep, and what the status and the other roles are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Counters:
    """The counts of one job, over all lives of its learner; the updates are counted by the updater.

    Attributes:
        epoch: the life of the learner; what belongs to an older one is void.
        version: of the weights that were published last; 0 before any.
        samples: transitions learned from, repeats included.
        steps, raw_frames: played by all actors.
        skipped_updates: those of this life whose loss was not finite.
        left_out_batches: those of this life that running statistics have left out, with a number that was not finite.
    """

    epoch: int = 1
    version: int = 0
    samples: int = 0
    steps: int = 0
    raw_frames: int = 0
    skipped_updates: int = 0
    left_out_batches: int = 0

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Go on from a checkpoint's; versions that were published since are not given out again."""
        self.version = max(self.version, int(stored["version"]))
        self.samples, self.steps, self.raw_frames = (int(stored[name]) for name in ("samples", "steps", "raw_frames"))

    def played(self, steps: int, raw_frames: int) -> None:
        """Set the actors' counts; they never fall below those of a checkpoint."""
        self.steps, self.raw_frames = max(self.steps, steps), max(self.raw_frames, raw_frames)

    def document(self, updates: int) -> dict[str, int]:
        """As checkpoints and evaluators get them."""
        return {
            "updates": updates,
            "samples": self.samples,
            "steps": self.steps,
            "raw_frames": self.raw_frames,
            "version": self.version,
            "epoch": self.epoch,
        }

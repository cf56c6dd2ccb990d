"""Reading ALE's own counters: how many raw frames a step took, and whether a life went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class FrameCounts:
    """For each of N environments: frames of the step itself, frames of the reset that followed it (0 without one),
    frames played in the episode by now or at its end (no-operation frames not counted), and lost lives."""

    of_step: NDArray[np.int64]
    of_reset: NDArray[np.int64]
    played: NDArray[np.int64]
    life_lost: NDArray[np.bool_]


class AtariCounters:
    """Differences between successive infos of a SAME_STEP vector environment over Atari.

    On the row of an ended episode the info is that of the new episode: its ``frame_number`` runs on over the reset and
    its ``episode_frame_number`` is the length of the new start. A frame skip that the end of a game cut short counts as
    short as it was, because nothing here multiplies steps by the skip.
    """

    def begin(self, info: Mapping[str, Any]) -> NDArray[np.int64]:
        """After a full reset; returns the frames [N] that the starts themselves took."""
        self._frame_number = info["frame_number"].astype(np.int64)
        self._lives = info["lives"].astype(np.int64)
        self._played: NDArray[np.int64] = np.zeros_like(self._frame_number)
        start: NDArray[np.int64] = info["episode_frame_number"].astype(np.int64)
        return start

    def step(self, info: Mapping[str, Any], ended: NDArray[np.bool_]) -> FrameCounts:
        """After a step in which the rows ``ended`` bool[N] were reset."""
        frame_number = info["frame_number"].astype(np.int64)
        lives = info["lives"].astype(np.int64)
        of_reset = np.where(ended, info["episode_frame_number"], 0).astype(np.int64)
        of_step = frame_number - self._frame_number - of_reset
        played = self._played + of_step
        # Some games (Qbert) show zero lives for a few frames before they are over; that is one loss, the end itself.
        life_lost = ~ended & (lives < self._lives) & (lives > 0)
        self._frame_number, self._lives, self._played = frame_number, lives, np.where(ended, 0, played)
        return FrameCounts(of_step, of_reset, played, life_lost)

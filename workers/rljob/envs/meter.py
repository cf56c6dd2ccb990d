"""Counting games: scores, lengths and raw frames of N environments, below every change that training makes to them, and the raw
frames and lives that ALE counts itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rljob.envs.base import EpisodeRecord


class EpisodeMeter:
    """Running totals of N games. One call a step, with the game's own rewards; a game's end yields its record."""

    def __init__(self, num_envs: int) -> None:
        self._returns: NDArray[np.float64] = np.zeros(num_envs, np.float64)
        self._lengths: NDArray[np.int64] = np.zeros(num_envs, np.int64)
        self._raw_frames: NDArray[np.int64] = np.zeros(num_envs, np.int64)

    def begin(self, raw_frames: NDArray[np.int64] | int = 0) -> None:
        """Forget every unfinished game; ``raw_frames`` have passed in each new one already (no-operation starts)."""
        self._returns[:] = 0
        self._lengths[:] = 0
        self._raw_frames[:] = raw_frames

    def forget(self, rows: NDArray[np.bool_]) -> None:
        """The games of ``rows`` (bool[N]) will never end; others begin in their place."""
        self._returns[rows] = 0
        self._lengths[rows] = 0
        self._raw_frames[rows] = 0

    def step(
        self,
        reward: NDArray[np.floating] | NDArray[np.integer],
        raw_frames: NDArray[np.int64] | int,
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        raw_frames_of_reset: NDArray[np.int64] | int = 0,
    ) -> tuple[EpisodeRecord, ...]:
        """Add one step (``reward`` [N] unclipped, ``raw_frames`` [N] of the step alone); returns the games that ended."""
        self._returns += reward
        self._lengths += 1
        self._raw_frames += raw_frames
        ended = np.flatnonzero(terminated | truncated)
        if ended.size == 0:
            return ()
        records = tuple(
            EpisodeRecord(
                environment=int(i),
                game_return=float(self._returns[i]),
                length_steps=int(self._lengths[i]),
                raw_frames=int(self._raw_frames[i]),
                truncated=bool(truncated[i]),
            )
            for i in ended
        )
        self._returns[ended] = 0
        self._lengths[ended] = 0
        self._raw_frames[ended] = np.broadcast_to(raw_frames_of_reset, self._returns.shape)[ended]
        return records


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

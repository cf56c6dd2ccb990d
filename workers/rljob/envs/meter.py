"""Counting games: scores, lengths and raw frames of N environments, below every change that training makes to them."""

from __future__ import annotations

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

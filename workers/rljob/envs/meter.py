"""Counting games: scores, lengths and raw frames of N environments, below every change that training makes to them, the raw
frames and lives that ALE counts, and the numbers that an environment reports of an episode that ends, such as ``is_success``."""

import dataclasses
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rljob.api.episode_metrics import LARGEST, MOST_NAMES, NAME_PATTERN
from rljob.api.lifecycle import TargetMetric
from rljob.envs.base import EpisodeRecord
from rljob.envs.restarting import FAILURE
from rljob.loading import shown

log = logging.getLogger(__name__)


class EpisodeMeter:
    """Running totals of N games. One call a step, with the game's own rewards; a game's end yields its record."""

    def __init__(self, num_envs: int) -> None:
        self._returns: NDArray[np.float64] = np.zeros(num_envs, np.float64)
        self._lengths: NDArray[np.int64] = np.zeros(num_envs, np.int64)
        self._raw_frames: NDArray[np.int64] = np.zeros(num_envs, np.int64)

    def begin(self, raw_frames: NDArray[np.int64] | int = 0) -> None:
        """Forget every unfinished game; ``raw_frames`` have passed in each new one already (no-operation starts)."""
        self.forget(slice(None), raw_frames)

    def forget(self, rows: Any, raw_frames: NDArray[np.int64] | int = 0) -> None:
        """The games of ``rows`` (bool[N], say) will never end; others begin in their place, as in `begin`."""
        self._returns[rows] = self._lengths[rows] = 0
        self._raw_frames[rows] = raw_frames

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
        self.forget(ended, np.broadcast_to(raw_frames_of_reset, self._returns.shape)[ended])
        return records


class FrameCounts(NamedTuple):
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


EPISODE_METRICS: Final = "rljob_episode_metrics"
"""Key of the info of an episode's last step: the numbers that it reports, by name."""

# What Gymnasium, ALE and we ourselves put there.
_NOT_ITS_OWN: Final = frozenset({"TimeLimit.truncated", "lives", "frame_number", "episode_frame_number", FAILURE})
_left_out: list[object] = []
_too_many: list[str] = []


def reported(info: Any) -> dict[str, float]:
    """The finite numbers in the ``info`` of an episode's last step, by name, True as 1 and False as 0; an array or tensor of one
    element is one, too. One that has no name to be shown is left out, which the log says once in this process."""
    found: dict[str, float] = {}
    for name, value in info.items() if isinstance(info, dict) else ():
        one = hasattr(value, "item") and np.prod(getattr(value, "shape", 0)) == 1  # of numpy, torch or jax
        number = value.item() if one else value
        counts = isinstance(number, bool | int | float) and abs(number) <= LARGEST
        if counts and isinstance(name, str) and re.fullmatch(NAME_PATTERN, name):
            found |= {} if name in _NOT_ITS_OWN else {name: float(number)}
        elif counts and not _left_out:
            _left_out.append(name)
            log.warning(
                "info[%s] at an episode's end is not reported: its name has to be 1 to 64 printable ASCII characters that do not "
                "begin with '_'",
                shown(name),
            )
    return found


def kept(episodes: Sequence[Mapping[str, float]], waited_for: TargetMetric | None) -> list[dict[str, float]]:
    """The numbers of ``episodes`` that are reported, of 16 names at most: the one that the job waits for, and the first of the
    others in the order of the environment. The log says once in this process which are left out."""
    own = (name for episode in episodes for name in episode)
    # The first has its place where these episodes lack it, too.
    names = list(dict.fromkeys(own if waited_for is None else (waited_for.name, *own)))
    if len(names) > MOST_NAMES and not _too_many:
        _too_many.append(names[MOST_NAMES])
        log.warning(
            "of %d numbers in info at an episode's end %d are reported: that of successPolicy.metric, and those that come first; "
            "the first that is left out is %r",
            len(names),
            MOST_NAMES,
            *_too_many,
        )
    return [{name: episode[name] for name in names[:MOST_NAMES] if name in episode} for episode in episodes]


def with_metrics(episodes: tuple[EpisodeRecord, ...], info: Any) -> tuple[EpisodeRecord, ...]:
    """The episodes with what their environments reported. ``info``: of their last steps, as Gymnasium's vectors give it: of each
    key an array with a value for each environment, and under ``_key`` which of them have one."""
    given = info.get(EPISODE_METRICS, info) if isinstance(info, dict) else {}
    masks = {
        name: has
        for name, values in given.items()
        if isinstance(values, np.ndarray)
        and isinstance(has := given.get(f"_{name}"), np.ndarray)
        and (has.shape, has.dtype) == (values.shape[:1], np.bool_)
    }
    return tuple(
        dataclasses.replace(
            each,
            metrics=reported(
                {name: given[name][each.environment] for name, has in masks.items() if has[each.environment]}
            ),
        )
        for each in episodes
    )

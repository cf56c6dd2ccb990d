"""How far a run has come towards its success policy, and how long the rest may take. Pure.

Raw frames are counted, so their progress is a ratio and their end a matter of the recent rate. A return is not: its
progress is the way covered from where the curve began, and when it will be reached is unknown: a slope continued knows
nothing of plateaus and jumps, and was wrong by a factor of forty in the last minute of a run. So there is no estimate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

RECENT_SECONDS: Final = 120.0
"""The recent part of a long history is no longer than this for rates."""


@dataclass(frozen=True, slots=True)
class Target:
    """The two criteria of a success policy that can be foreseen; whichever is met first ends the run.

    Attributes:
        raw_frames: emulator frames over the whole run; None = no such bound.
        mean_return: evaluation mean to reach; None = no such bound.
        window_evaluations: the mean is taken over so many evaluations in a row.
    """

    raw_frames: int | None = None
    mean_return: float | None = None
    window_evaluations: int = 1


@dataclass(frozen=True, slots=True)
class Point:
    """One moment of a run: elapsed seconds, raw frames so far, and the training return (None before the first game)."""

    elapsed_seconds: float
    raw_frames: int
    mean_return: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Percent of the way (0..100) and seconds to go; None where unknowable. Seconds are only ever those to the end of the raw
    frames."""

    percent: float | None
    eta_seconds: float | None


def progress(target: Target, history: Sequence[Point], evaluations: Sequence[float] = ()) -> Progress:
    """Progress towards ``target``.

    Args:
        history: moments in order of time, oldest first.
        evaluations: evaluation means, oldest first.

    Returns:
        The one of the two criteria that is further on its way: the larger percentage, or of equal ones the raw frames.
    """
    candidates = [] if target.raw_frames is None else [_frames(target.raw_frames, history)]
    if target.mean_return is not None:
        candidates.append(_return(target.mean_return, target.window_evaluations, history, evaluations))
    unknown = Progress(None, None)
    return max(candidates, key=lambda one: -1.0 if one.percent is None else one.percent, default=unknown)


def _frames(wanted: int, history: Sequence[Point]) -> Progress:
    if not history:
        return Progress(0.0, None)
    last = history[-1]
    if last.raw_frames >= wanted:
        return Progress(100.0, 0.0)
    percent = 100.0 * max(0, last.raw_frames) / wanted
    recent = [point for point in history if point.elapsed_seconds >= last.elapsed_seconds - RECENT_SECONDS]
    first = recent[0] if len(recent) > 1 else history[-2:][0]
    seconds, frames = last.elapsed_seconds - first.elapsed_seconds, last.raw_frames - first.raw_frames
    if seconds <= 0 or frames <= 0:
        return Progress(percent, None)
    return Progress(percent, (wanted - last.raw_frames) * seconds / frames)


def _return(wanted: float, window: int, history: Sequence[Point], evaluations: Sequence[float]) -> Progress:
    if len(evaluations) >= window and sum(evaluations[-window:]) / window >= wanted:
        return Progress(100.0, 0.0)
    curve = [point.mean_return for point in history if point.mean_return is not None]
    if not curve:
        return Progress(None, None)
    start, now = min(curve[: max(1, len(curve) // 10)]), median(curve[-5:])
    if now >= wanted:
        return Progress(99.0, None)  # only an evaluation is missing
    if start >= wanted:
        return Progress(None, None)
    return Progress(min(99.0, max(0.0, 100.0 * (now - start) / (wanted - start))), None)

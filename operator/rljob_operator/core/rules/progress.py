"""The learner's advance, and the figures of ``status.progress``."""

from __future__ import annotations

from rljob.api.controller_memory import MAX_CURVE_POINTS, AdvanceMemory, CurvePoint
from rljob.api.status import ProgressStatus
from rljob.api.timestamps import stamp
from rljob.telemetry.progress import Point, Target, progress

from rljob_operator.core.context import Look
from rljob_operator.core.observed import LearnerSample

WRITE_SECONDS = 30.0
"""Progress is written at most so often, unless it changed by a percent."""

STALL_WINDOW_SECONDS = 120.0
"""Without an update for so long the learner counts as stalled; a quarter of progressDeadlineSeconds where that is less."""


def advance(look: Look) -> Look:
    """Remember when the learner's updates last grew, and last grew beyond the most ever seen."""
    sample, before = look.observed.learner, look.memory.advance
    if sample is None or (before is None and sample.updates == 0):
        return look
    if look.memory.starting_since is None:
        return look  # nothing runs: the sample is from before
    moment = stamp(min(look.now, max(sample.taken_seconds, 0.0)))
    if before is None:
        now = AdvanceMemory.model_construct(
            updates=sample.updates, time=moment, most_updates=sample.updates, most_time=moment
        )
        return look.remember(advance=now)
    if sample.updates == before.updates or moment < max(before.time, look.memory.starting_since):
        return look  # nothing new, or a sample of the life before
    changes: dict[str, object] = {"updates": sample.updates}
    if sample.updates > before.updates:
        changes["time"] = moment
    if sample.updates > before.most_updates:
        changes |= {"most_updates": sample.updates, "most_time": moment}
    return look.remember(advance=before.model_copy(update=changes))


def stall_window_seconds(look: Look) -> float:
    """Longest time between two updates of a learner that advances."""
    return min(STALL_WINDOW_SECONDS, look.spec.progress_deadline_seconds / 4)


def advancing(look: Look) -> bool:
    """Whether an update was made within the window, since the roles last came up."""
    now, since = look.memory.advance, look.memory.starting_since
    if now is None or since is None or now.time < since:
        return False
    return look.watched_for(now.time) <= stall_window_seconds(look)


def standstill(look: Look) -> str:
    """What the learner says of a stand-still of both sides, as long as its word is fresh; nothing where something moves."""
    sample = look.observed.learner
    if sample is None or not look.learner_ready() or look.since(sample.taken_seconds) > stall_window_seconds(look):
        return ""
    return sample.standstill


def report(look: Look) -> Look:
    """Write ``status.progress`` and ``activeSeconds`` every ``WRITE_SECONDS``, or when the way covered changed by a percent."""
    written = look.status.progress.last_update_time
    due = written is None or not 0 <= look.now - written < WRITE_SECONDS
    sample = look.observed.learner
    if not due and not (sample is not None and _moved(look, sample.raw_frames_total)):
        return look
    return write(look)


def write(look: Look) -> Look:
    """Write them now."""
    sample, before, active = look.observed.learner, look.status.progress, look.active_seconds()
    if sample is None:
        unknown = {"queue_fill_percent": None, "policy_lag_updates": None}
        now = before.model_copy(update={"last_update_time": look.now, **unknown})
        return look.tell(progress=now, active_seconds=int(active))
    frames = sample.raw_frames_total
    curve = _with(look.memory.curve, active, frames, sample.mean_return)
    means = [e.mean for e in sample.evaluations if e.finished]
    points = [Point(float(p.active_seconds), p.raw_frames, p.mean_return) for p in curve]
    done = progress(_target(look), points, means)
    figures = ProgressStatus.model_construct(
        learner_updates=sample.updates,
        raw_frames=before.raw_frames if frames is None else frames,
        eval_return=means[-1] if means else before.eval_return,
        percent=None if done.percent is None else int(done.percent),
        estimated_seconds_remaining=None if done.eta_seconds is None else int(done.eta_seconds),
        queue_fill_percent=_fill_percent(sample),
        policy_lag_updates=None if sample.policy_lag_updates_p95 is None else round(sample.policy_lag_updates_p95),
        last_update_time=look.now,
    )
    return look.remember(curve=curve).tell(progress=figures, active_seconds=int(active))


def _fill_percent(sample: LearnerSample) -> int | None:
    if sample.depth_batches is None or not sample.bound_batches:
        return None
    return max(0, min(100, round(100 * sample.depth_batches / sample.bound_batches)))


def _moved(look: Look, frames: int | None) -> bool:
    """Whether the way to the frame budget changed by a percent since it was written."""
    budget = look.spec.success_policy.raw_frames
    if budget is None or frames is None:
        return False
    return abs(frames - look.status.progress.raw_frames) >= budget / 100


def _target(look: Look) -> Target:
    policy = look.spec.success_policy
    wanted = policy.target_return
    return Target(
        raw_frames=policy.raw_frames,
        mean_return=wanted.value if wanted is not None else None,
        window_evaluations=wanted.window_evaluations if wanted is not None else 1,
    )


def _with(curve: list[CurvePoint], active: float, frames: int | None, mean: float | None) -> list[CurvePoint]:
    """The curve with one more moment; a full one first gives up every second moment, so that it always spans the run."""
    if curve and int(active) <= curve[-1].active_seconds:
        return curve
    if len(curve) >= MAX_CURVE_POINTS:
        curve = curve[::2]
    last = curve[-1].raw_frames if curve else 0
    point = CurvePoint.model_construct(
        active_seconds=int(active), raw_frames=last if frames is None else frames, mean_return=mean
    )
    return [*curve, point]

"""The learner's advance, and the figures of ``status.progress``."""

from rljob.api.controller_memory import MAX_CURVE_POINTS, AdvanceMemory, CurvePoint
from rljob.api.learner_status import LearnerStatus
from rljob.api.status import ProgressStatus
from rljob.api.status_model import stamp
from rljob.telemetry.flat_figures import flatten_status
from rljob.telemetry.progress import Point, Target, progress
from rljob.telemetry.sizing import crowded, next_units, sentence

from rljob_operator.core.context import ReconcileContext
from rljob_operator.core.member import Phase, Role

WRITE_SECONDS = 30.0
"""Progress is written at most so often, unless it changed by a percent."""

STALL_WINDOW_SECONDS = 120.0
"""Without an update for so long the learner counts as stalled; a quarter of progressDeadlineSeconds where that is less."""


def advance(context: ReconcileContext) -> ReconcileContext:
    """Remember when the learner's updates last grew, and last grew beyond the most that it has made since it started.

    A learner that started anew goes on from a checkpoint, or from nothing where there was none: the updates of the one before are
    no measure for it. One that goes back to a checkpoint by itself, again and again, makes updates and no progress.
    """
    sample, before = context.observed.learner, context.memory.advance
    updates = sample.updates if sample is not None else None
    if sample is None or updates is None or (before is None and updates == 0):
        return context
    if context.memory.starting_since is None:
        return context  # nothing runs: the sample is from before
    moment = stamp(min(context.now, max(sample.taken_seconds, 0.0)))
    if before is None:
        now = AdvanceMemory.model_construct(updates=updates, time=moment, most_updates=updates, most_time=moment)
        return context.with_memory(advance=now)
    if updates == before.updates or moment < max(before.time, context.memory.starting_since):
        return context  # nothing new, or a sample of the life before
    changes: dict[str, object] = {"updates": updates}
    if updates > before.updates:
        changes["time"] = moment
    started = max((m.ready_seconds or 0.0 for m in context.of(Role.LEARNER, Phase.READY)), default=0.0)
    if updates > before.most_updates or before.most_time < started <= moment:
        changes |= {"most_updates": updates, "most_time": moment}
    return context.with_memory(advance=before.model_copy(update=changes))


def stall_window_seconds(context: ReconcileContext) -> float:
    """Longest time between two updates of a learner that advances."""
    return min(STALL_WINDOW_SECONDS, context.spec.progress_deadline_seconds / 4)


def advancing(context: ReconcileContext) -> bool:
    """Whether an update was made within the window, since the roles last came up."""
    now, since = context.memory.advance, context.memory.starting_since
    if now is None or since is None or now.time < since:
        return False
    return context.watched_for(now.time) <= stall_window_seconds(context)


def standstill(context: ReconcileContext) -> str:
    """What the learner reports of a stand-still of both sides, while that is fresh; nothing where something moves."""
    sample = context.observed.learner
    if (
        sample is None
        or not context.learner_ready()
        or context.since(sample.taken_seconds) > stall_window_seconds(context)
    ):
        return ""
    return sample.standstill


def filling(context: ReconcileContext) -> str:
    """How full a replay is that grows before learning begins; nothing where it does not grow."""
    sample = context.observed.learner
    if sample is None or context.since(sample.taken_seconds) > stall_window_seconds(context):
        return ""
    replay = sample.replay
    if replay is None or replay.state != "filling" or not sample.steps_per_second:
        return ""
    least = max(1, context.spec.required_replay.resolved().min_size)
    # In tenths: each change is written.
    tenths = min(10, 10 * (replay.items or 0) // least)
    return f"the replay has {10 * tenths} % of the {least:,} transitions that learning needs to start"


def report(context: ReconcileContext) -> ReconcileContext:
    """Write ``status.progress`` and ``activeSeconds`` every ``WRITE_SECONDS``, or when the share that is done changed by a
    percent."""
    written = context.status.progress.last_update_time
    due = written is None or not 0 <= context.now - written < WRITE_SECONDS
    sample = context.observed.learner
    if not due and not (sample is not None and _moved(context, sample.raw_frames_total)):
        return context
    return write(context)


def write(context: ReconcileContext) -> ReconcileContext:
    """Write them now."""
    sample, before, active = context.observed.learner, context.status.progress, context.active_seconds()
    if sample is None:
        unknown = {"queue_fill_percent": None, "policy_lag_updates": None, "next_unit": ""}
        now = before.model_copy(update={"last_update_time": context.now, **unknown})
        return context.with_status(progress=now, active_seconds=int(active))
    frames = sample.raw_frames_total
    curve = _with(context.memory.curve, active, frames, sample.mean_return)
    means = [e.mean for e in sample.evaluations if e.finished]
    points = [Point(float(p.active_seconds), p.raw_frames, p.mean_return) for p in curve]
    done = progress(_target(context), points, means)
    figures = ProgressStatus.model_construct(
        learner_updates=before.learner_updates if sample.updates is None else sample.updates,
        raw_frames=before.raw_frames if frames is None else frames,
        eval_return=means[-1] if means else before.eval_return,
        percent=None if done.percent is None else int(done.percent),
        estimated_seconds_remaining=None if done.eta_seconds is None else int(done.eta_seconds),
        queue_fill_percent=_fill_percent(sample),
        policy_lag_updates=None if sample.policy_lag_updates_p95 is None else round(sample.policy_lag_updates_p95),
        next_unit=_next_unit(context, sample),
        last_update_time=context.now,
    )
    return context.with_memory(curve=curve).with_status(progress=figures, active_seconds=int(active))


def _next_unit(context: ReconcileContext, sample: LearnerStatus) -> str:
    """What it was before, while training stands still for an evaluation, of which the figures tell nothing."""
    if sample.state == "Evaluating":
        return context.status.progress.next_unit
    figures, cores = flatten_status(sample.to_document()), context.observed.cores
    found = next_units(figures, context.spec, cores=cores)
    return crowded(figures, cores) if found is None else sentence(found)


def _fill_percent(sample: LearnerStatus) -> int | None:
    if sample.queue_depth_batches is None or not sample.queue_bound_batches:
        return None
    return max(0, min(100, round(100 * sample.queue_depth_batches / sample.queue_bound_batches)))


def _moved(context: ReconcileContext, frames: int | None) -> bool:
    """Whether the way to the frame budget changed by a percent since it was written."""
    budget = context.spec.success_policy.raw_frames
    if budget is None or frames is None:
        return False
    return abs(frames - context.status.progress.raw_frames) >= budget / 100


def _target(context: ReconcileContext) -> Target:
    policy = context.spec.success_policy
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

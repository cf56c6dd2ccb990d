"""The job's clocks: when it started, how long it was active, since when its roles come up, and since when it is watched; and when
it fails because of time.

None of its deadlines runs while the job is suspended. Those that wait for something to happen do not run either while a part that
is needed has no place (`rules.waiting`), and begin anew where it was not watched whether it did (`gap`).
"""

from rljob.api.conditions import Reason
from rljob.api.controller_memory import AdvanceMemory, OutcomeMemory
from rljob.api.status_model import stamp

from rljob_operator.core.autoscaling.model import DECISION_SECONDS
from rljob_operator.core.context import Mode, ReconcileContext, failed, some
from rljob_operator.core.member import Phase, Role
from rljob_operator.core.rules import failures, progress, start_and_drain as lifecycle

LONGEST_GAP_SECONDS = 120.0
"""A job that runs is reconciled every half minute, and what was seen is written every minute and a half at the latest; after a
longer time without a write it was not watched."""


def gap(context: ReconcileContext) -> ReconcileContext:
    """Begin the windows of a running job anew after a time in which it was not watched, since what they wait for was not seen.

    The controller was away, or the clock was set on, or the machine slept. On one machine that time was not active.
    """
    written, since = context.status.progress.last_update_time, context.memory.active_since
    if since is None or written is None or context.now - written <= LONGEST_GAP_SECONDS:
        return context
    context = context.with_memory(watched_since=context.now)
    if context.session is None:
        return context  # its pods ran, and cost, meanwhile
    return context.with_memory(active_since=stamp(since + context.now - written))


def start(context: ReconcileContext) -> ReconcileContext:
    """Start the clocks of a job that runs: the first time, after a suspension, and after a session of `rljob run` that ended."""
    context = _after_a_crash(context)
    if (
        context.memory.suspension is not None and not context.alive()
    ):  # the last member has left since the job was to go on
        context = stop(context)
    if context.status.start_time is None:
        context = context.with_status(start_time=context.now)
    if context.memory.active_since is None:
        context = context.with_memory(
            active_since=context.now,
            starting_since=context.now,
            placed=None,
            started=None,
            advance=_resumes_at(context),
        )
    if context.memory.suspension is None:
        return context
    return context.with_memory(suspension=None, watched_since=context.now)  # nothing was expected of it meanwhile


def stop(context: ReconcileContext) -> ReconcileContext:
    """Stop the clocks of a job without running members, and write its progress for the last time."""
    if context.memory.active_since is None:
        return context
    context = progress.write(context)
    seconds = stamp(context.active_seconds())
    memory = {
        "active_since": None,
        "spent_active_seconds": seconds,
        "starting_since": None,
        "placed": None,
        "started": None,
    }
    return context.with_memory(**memory).with_status(active_seconds=int(seconds))


def roles_up(context: ReconcileContext) -> ReconcileContext:
    """Note when all roles are ready for the first time after a start; from then on the progress deadline counts."""
    if context.memory.started is not None or any(context.ready(role) < context.needed_of(role) for role in Role):
        return context
    return context.with_memory(started=context.now)


def _resumes_at(context: ReconcileContext) -> AdvanceMemory | None:
    """The advance so far; the last updates before a stop are known from the checkpoint alone, and are no advance later."""
    before, saved = context.memory.advance, context.observed.checkpoint
    if before is None or not saved.usable or saved.step <= before.updates:
        return before
    return before.model_copy(update={"updates": saved.step, "most_updates": max(saved.step, before.most_updates)})


def _after_a_crash(context: ReconcileContext) -> ReconcileContext:
    """A local controller was killed and nothing of its job survived: the time in between was not active.

    The last activeSeconds written stand for what went before; they are at most half a minute old.
    """
    session, since = context.session, context.memory.active_since
    if session is None or since is None or context.alive() or since >= context.now - session.elapsed_seconds - 0.001:
        return context
    return context.with_memory(
        active_since=None, spent_active_seconds=float(context.status.active_seconds), started=None
    )


def active_deadline(context: ReconcileContext) -> OutcomeMemory | None:
    """``activeDeadlineSeconds`` is over; time in suspension does not count."""
    limit = context.spec.active_deadline_seconds
    if limit is None or context.active_seconds() < limit:
        return None
    return failed(context, Reason.DEADLINE_EXCEEDED, f"not finished after activeDeadlineSeconds = {limit}")


def startup_deadline(context: ReconcileContext) -> OutcomeMemory | None:
    """Not every role was ready within ``startupDeadlineSeconds`` after all had a place."""
    limit = context.spec.startup_deadline_seconds
    if context.memory.started is not None or context.watched_for(context.memory.placed) < limit:
        return None
    waiting = [m for m in context.observed.members if m.role is not Role.EVALUATOR and m.phase is not Phase.READY]
    why = [f"{m.name} ({m.waiting}: {m.waiting_message})" if m.waiting else m.name for m in waiting]
    missing = [] if context.of(Role.LEARNER) else ["learner (not there)"]
    absent = context.needed_actors() - len(context.of(Role.ACTOR))
    if absent > 0:
        missing.append(f"{absent} actors (not there)")
    names = some([*why, *missing], 5)
    return failed(context, Reason.STARTUP_DEADLINE_EXCEEDED, f"not ready after {limit} seconds: {names}")


def progress_deadline(context: ReconcileContext) -> OutcomeMemory | None:
    """The learner has made no update beyond its highest count for ``progressDeadlineSeconds`` since all roles were ready; time in
    which a part that it needs waits for a place does not count, nor does time in which the replay grows that learning begins
    with."""
    limit = context.spec.progress_deadline_seconds
    if (
        context.memory.started is None
        or context.memory.placed is None
        or context.watched_for(progress_since(context)) < limit
        or progress.filling(context)
    ):
        return None
    advance = context.memory.advance
    at = f"not advanced beyond update {advance.most_updates:,}" if advance is not None else "made no update"
    return failed(context, Reason.PROGRESS_DEADLINE_EXCEEDED, f"the learner has {at} for {limit} seconds")


def progress_since(context: ReconcileContext) -> float | None:
    """Since when the progress deadline runs: the last real advance, or the moment from which one could be expected.

    Until a learner that comes back is ready, the clock of the last advance goes on.
    """
    advance, learner = context.memory.advance, context.status.condition("LearnerReady")
    moments = [context.memory.started or 0.0, context.memory.placed or 0.0]
    if advance is not None:
        moments.append(advance.most_time)
    if learner is not None and learner.status == "True":
        moments.append(learner.last_transition_time)
    return max(moments)


IDLE_SECONDS = 30.0
"""A running job is reconciled this often at least: its progress is written then."""

LEAVING_SECONDS = 5.0
"""So often while members leave or a checkpoint is waited for."""


def next_look_seconds(context: ReconcileContext, mode: Mode) -> float | None:
    """Seconds until the next timer is due; None where only a change can bring anything (suspended, stopped, kept
    after its end)."""
    if mode in (Mode.FINISHED, Mode.FINISHING):
        return _after_the_end(context, mode)
    if mode is Mode.ACCEPTING or (mode in (Mode.SUSPENDING, Mode.SESSION_ENDING) and not context.alive()):
        return None
    if mode is not Mode.RUNNING:
        return LEAVING_SECONDS
    due = [IDLE_SECONDS, progress.stall_window_seconds(context), *_restarts(context), *_deadlines(context)]
    if context.spec.autoscaling.mode == "Internal":
        due.append(DECISION_SECONDS)
    return max(0.0, min(due))


def _restarts(context: ReconcileContext) -> list[float]:
    if not context.memory.members:
        return []
    there, up = {m.name: m for m in context.observed.members}, {m.name for m in context.alive()}
    waiting = (each for each in context.memory.members if not each.dismissed and each.name not in up)
    delays = (failures.restart_due(context, there.get(each.name), each) for each in waiting)
    return [delay for delay in delays if delay > 0]


def _deadlines(context: ReconcileContext) -> list[float]:
    spec, found = context.spec, []
    if spec.active_deadline_seconds is not None:
        found.append(spec.active_deadline_seconds - context.active_seconds())
    if context.memory.started is None and context.memory.placed is not None:
        found.append(spec.startup_deadline_seconds - context.watched_for(context.memory.placed))
    return found


def _after_the_end(context: ReconcileContext, mode: Mode) -> float | None:
    left = [LEAVING_SECONDS] if mode is Mode.FINISHING else []
    ttl = lifecycle.ttl_seconds_left(context)
    if ttl is not None:
        left.append(ttl)
    return min(left, default=None)

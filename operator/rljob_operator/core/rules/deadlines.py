"""When a job fails because of time. None of these clocks runs while the job is suspended; those that wait for something to happen
do not run either while a part that is needed has no place (`rules.waiting`).

Those that wait for something to happen begin anew where it was not watched whether it did (`active_time.gap`).
"""

from rljob.api.conditions import Reason
from rljob.api.controller_memory import OutcomeMemory

from rljob_operator.core.autoscaling.model import DECISION_SECONDS
from rljob_operator.core.context import Mode, ReconcileContext, failed, some
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.core.rules import failures, progress, start_and_drain as lifecycle


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
    waiting = list(_waiting(context))
    missing = [] if context.of(Role.LEARNER) else ["learner (not there)"]
    absent = context.needed_actors() - len(context.of(Role.ACTOR))
    if absent > 0:
        missing.append(f"{absent} actors (not there)")
    names = some([*(_why(m) for m in waiting), *missing], 5)
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


def _waiting(context: ReconcileContext) -> list[Member]:
    return [m for m in context.observed.members if m.role is not Role.EVALUATOR and m.phase is not Phase.READY]


def _why(member: Member) -> str:
    return f"{member.name} ({member.waiting}: {member.waiting_message})" if member.waiting else member.name


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
    there = {m.name: m for m in context.observed.members}
    waiting = (each for each in context.memory.members if not each.dismissed)
    delays = (
        failures.restart_due(context, there.get(each.name), each) for each in waiting if _is_down(there.get(each.name))
    )
    return [delay for delay in delays if delay > 0]


def _is_down(member: Member | None) -> bool:
    return member is None or not member.alive


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

"""When a job fails because of time. None of these clocks runs while the job is suspended; those that wait for something to happen
do not run either while a part that is needed has no place (`rules.waiting`).

Those that wait for something to happen begin anew where it was not watched whether it did (`active_time.gap`).
"""

from rljob.api.conditions import Reason
from rljob.api.controller_memory import OutcomeMemory

from rljob_operator.core.context import ReconcileContext, failed, some
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.core.rules import progress


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

"""When to reconcile a job again though nothing has been heard of it."""

from rljob_operator.core.autoscaling.model import DECISION_SECONDS
from rljob_operator.core.context import Mode, ReconcileContext
from rljob_operator.core.member import Member
from rljob_operator.core.rules import failures, progress, start_and_drain as lifecycle

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

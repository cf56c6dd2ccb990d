"""What a job waits for before its parts can work: a node, a volume, quota, or that the API server takes a pod at all.

Waiting is not failing: the deadlines count once every part that is needed has a place (`ControllerMemory.placed`).
"""

from typing import Final

from rljob.api.conditions import Reason
from rljob.api.status_model import rfc3339, stamp

from rljob_operator.core.context import ReconcileContext
from rljob_operator.core.member import Member, Phase, Role

REJECTED: Final = (
    Reason.POD_TEMPLATE_REJECTED,
    Reason.POD_SECURITY_FORBIDDEN,
    Reason.NAME_CONFLICT,
    Reason.NAMESPACE_TERMINATING,
    Reason.KEYS_LOST,
    Reason.NOT_MADE,
)
"""Refusals for which something has to be changed; `Reason.QUOTA_EXCEEDED` may go away by itself."""
_NOT_AT_WORK: Final = (Phase.ABSENT, Phase.STARTING, Phase.EXITED)


def refused(context: ReconcileContext, *reasons: Reason) -> list[Member]:
    """Members that the API server refuses to make for any of ``reasons``."""
    return [member for member in context.observed.members if member.waiting in reasons]


def needed(context: ReconcileContext) -> list[Member]:
    """Members without a place that the job needs: those of its core, and actors while too few have a place."""
    found = [m for role in Role for m in context.of(role, *_NOT_AT_WORK) if not m.placed and m.waiting_message]
    enough = _placed(context, Role.ACTOR) >= context.needed_actors()
    optional = (Role.EVALUATOR, Role.ACTOR) if enough else (Role.EVALUATOR,)
    return [member for member in found if member.role not in optional and context.is_wanted(member)]


def note(context: ReconcileContext) -> ReconcileContext:
    """Remember since when every part that is needed has a place; a lost node is none. Before the job was up, its active
    time begins there."""
    lost = any(member.node_lost for member in context.alive(Role.REPLAY, Role.LEARNER, Role.INFERENCE))
    had = context.memory.placed is not None or all(_placed(context, role) >= context.needed_of(role) for role in Role)
    placed = had and not lost and not needed(context)
    if placed == (context.memory.placed is not None):
        return context
    if context.memory.started is None:
        context = context.with_memory(spent_active_seconds=stamp(context.active_seconds()), active_since=context.now)
    return context.with_memory(placed=context.now if placed else None)


def in_words(context: ReconcileContext) -> list[str]:
    """Since when each member that is needed waits, and for what."""
    return [f"{m.name} has waited since {rfc3339(m.since_seconds)}: {m.waiting_message}" for m in needed(context)]


def _placed(context: ReconcileContext, role: Role) -> int:
    members = context.of(role, Phase.STARTING, Phase.READY, Phase.DRAINING, Phase.EXITED)
    return sum(member.placed and context.is_wanted(member) for member in members)

"""Protected members whose node is being emptied: the learner writes a checkpoint, then it moves; a shard moves at once.

Learner and shards have disruption budgets that let nobody evict them, so the drain of a node waits for them. They are asked to
leave here, which is no failure, and start anew where there is a place. All other roles are evicted by the drain itself.
"""

from __future__ import annotations

from rljob_operator.core.context import Mode, ReconcileContext
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.core.rules import checkpoints

CHECKPOINT_SECONDS = 120.0
"""A checkpoint is waited for so long. A drain has to end; the learner writes one more when it is asked to leave, and goes on from
the newest that could be written."""


def to_move(context: ReconcileContext, mode: Mode) -> tuple[str, ...]:
    """Members to ask to leave their node now."""
    if mode is not Mode.RUNNING:
        return ()
    return tuple(member.name for member in _emptied(context) if _may_go(context, member))


def in_words(context: ReconcileContext) -> list[str]:
    """Of each that is still to move, a clause that says what it waits for."""
    return [_waits_for(context, member) for member in _emptied(context)]


def checkpoint_wanted_seconds(context: ReconcileContext) -> float | None:
    """The request for a checkpoint that the learner has to answer before it moves; None where none is waited for."""
    for member in _emptied(context):
        if member.role is Role.LEARNER and context.observed.keeps_checkpoints and not _may_go(context, member):
            return member.node_emptied_seconds
    return None


def _emptied(context: ReconcileContext) -> list[Member]:
    """Those that work on a node that is being emptied, and began before that: one that tolerates such a node stays there."""
    if context.spec.learner.disruption_budget != "Protected":
        return []
    found = context.of(Role.REPLAY, Phase.READY) + context.of(Role.LEARNER, Phase.READY)
    moments = ((m, m.node_emptied_seconds) for m in found if context.is_wanted(m))
    return [m for m, emptied in moments if emptied is not None and m.since_seconds <= emptied]


def _may_go(context: ReconcileContext, member: Member) -> bool:
    if member.role is not Role.LEARNER or not _has_learned(context):
        return True
    if not context.observed.keeps_checkpoints:
        return False
    asked = member.node_emptied_seconds or 0.0
    return checkpoints.answers(context, asked) or context.since(asked) >= CHECKPOINT_SECONDS


def _has_learned(context: ReconcileContext) -> bool:
    advance = context.memory.advance
    return advance is not None and advance.updates > 0


def _waits_for(context: ReconcileContext, member: Member) -> str:
    clause = f"{member.name} leaves {member.node_name or 'its node'}, which is being emptied"
    if _may_go(context, member):
        return clause
    if not context.observed.keeps_checkpoints:
        return f"{member.name} stays on {member.node_name or 'its node'}, which is being emptied: its checkpoints are in its pod"
    return f"{clause}, after a checkpoint"

"""Replay shards whose volume is lost: they are given up as they wait for it, and start on a new one, without experience.

What was learned is the learner's; experience is made anew. A job that waits for a node which never comes back would make neither.
"""

from __future__ import annotations

from rljob.api.controller_memory import ColdStartMemory

from rljob_operator.core.context import Mode, ReconcileContext, bounded
from rljob_operator.core.member import Member, Phase, Role


def note(context: ReconcileContext) -> ReconcileContext:
    """Remember which shards lose their volume now, and which serve again."""
    before = {each.name: each for each in context.memory.cold_starts}
    after = dict(before)
    for member in context.of(Role.REPLAY, Phase.READY):
        known = after.get(member.name)
        if known is not None and not known.ready:
            after[member.name] = known.model_copy(update={"ready": True})
    for member in context.of(Role.REPLAY, Phase.STARTING):
        known, why = after.get(member.name), context.observed.lost_volumes.get(member.name)
        if why is not None and context.is_wanted(member) and not _given_up(known, member):
            after[member.name] = ColdStartMemory.model_construct(
                name=member.name,
                number=known.number + 1 if known is not None else 1,
                incarnation=member.incarnation,
                time=context.now,
                message=bounded(f"{member.name} starts without what it held: {why}"),
                ready=False,
            )
    return context if after == before else context.with_memory(cold_starts=list(after.values()))


def to_drain(context: ReconcileContext, mode: Mode) -> tuple[str, ...]:
    """Shards that still wait for a volume which was given up."""
    if mode is not Mode.RUNNING or not context.memory.cold_starts:
        return ()
    known = {each.name: each for each in context.memory.cold_starts}
    return tuple(m.name for m in context.of(Role.REPLAY, Phase.STARTING) if _given_up(known.get(m.name), m))


def in_words(context: ReconcileContext) -> str:
    """The sentences about shards that have not served since; empty where there are none."""
    return "; ".join(each.message for each in context.memory.cold_starts if not each.ready)


def _given_up(known: ColdStartMemory | None, member: Member) -> bool:
    return known is not None and known.incarnation == member.incarnation

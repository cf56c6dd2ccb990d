"""When a job fails because of time. None of these clocks runs while the job is suspended.

Those that wait for something to happen begin anew where nobody watched whether it did (`rules.leaps`).
"""

from __future__ import annotations

from rljob.api.conditions import Reason
from rljob.api.controller_memory import OutcomeMemory

from rljob_operator.core.context import Look, some
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.core.rules.outcomes import failed


def active_deadline(look: Look) -> OutcomeMemory | None:
    """``activeDeadlineSeconds`` is over; time in suspension does not count."""
    limit = look.spec.active_deadline_seconds
    if limit is None or look.active_seconds() < limit:
        return None
    return failed(look, Reason.DEADLINE_EXCEEDED, f"not finished after activeDeadlineSeconds = {limit}")


def startup_deadline(look: Look) -> OutcomeMemory | None:
    """Not every role was ready within ``startupDeadlineSeconds`` of the start, or of resuming."""
    limit = look.spec.startup_deadline_seconds
    if look.memory.started is not None or look.watched_for(look.memory.starting_since) < limit:
        return None
    waiting = list(_waiting(look))
    missing = [] if look.of(Role.LEARNER) else ["learner (not there)"]
    absent = look.needed_actors() - len(look.of(Role.ACTOR))
    if absent > 0:
        missing.append(f"{absent} actors (not there)")
    names = some([*(_why(m) for m in waiting), *missing], 5)
    return failed(look, Reason.STARTUP_DEADLINE_EXCEEDED, f"after {limit} seconds not ready: {names}")


def progress_deadline(look: Look) -> OutcomeMemory | None:
    """The learner has made no update beyond its best for ``progressDeadlineSeconds`` since all roles were ready."""
    limit = look.spec.progress_deadline_seconds
    if look.memory.started is None or look.watched_for(progress_since(look)) < limit:
        return None
    advance = look.memory.advance
    at = f"stood at update {advance.updates:,}" if advance is not None else "made no update"
    return failed(look, Reason.PROGRESS_DEADLINE_EXCEEDED, f"the learner has {at} for {limit} seconds")


def progress_since(look: Look) -> float | None:
    """Since when the progress deadline runs: the last real advance, or the moment from which one could be expected.

    A learner that came back goes on from a checkpoint and needs time to reach its best again; until it is ready, the clock of
    the last advance goes on.
    """
    advance, learner = look.memory.advance, look.status.condition("LearnerReady")
    moments = [look.memory.started or 0.0]
    if advance is not None:
        moments.append(advance.most_time)
    if learner is not None and learner.status == "True":
        moments.append(learner.last_transition_time)
    return max(moments)


def _waiting(look: Look) -> list[Member]:
    return [m for m in look.observed.members if m.role is not Role.EVALUATOR and m.phase is not Phase.READY]


def _why(member: Member) -> str:
    return f"{member.name} ({member.waiting}: {member.waiting_message})" if member.waiting else member.name

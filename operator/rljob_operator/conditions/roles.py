"""ReplayReady, LearnerReady, InferenceReady and ActorsReady. Nothing is said of a role that the job does not have."""

from __future__ import annotations

from rljob.api.conditions import ConditionType, Reason

from rljob_operator.conditions.said import Said, false, true
from rljob_operator.look import Look, Mode, some
from rljob_operator.model import Member, Phase, Role

LOOPING_ENDS = 3
"""So many ends in a row before it worked make a member one that is crash-looping; fewer, one that restarts."""


def replay(look: Look, mode: Mode) -> Said | None:
    """Every shard serves."""
    if look.shards == 0:
        return None
    return _role(look, mode, ConditionType.REPLAY_READY, Role.REPLAY, look.shards)


def learner(look: Look, mode: Mode) -> Said:
    """The learner serves."""
    return _role(look, mode, ConditionType.LEARNER_READY, Role.LEARNER, 1)


def inference(look: Look, mode: Mode) -> Said | None:
    """Every inference server of its own serves."""
    if look.inference_servers == 0:
        return None
    return _role(look, mode, ConditionType.INFERENCE_READY, Role.INFERENCE, look.inference_servers)


def actors(look: Look, mode: Mode) -> Said:
    """At least the smallest number of actors plays."""
    return _role(look, mode, ConditionType.ACTORS_READY, Role.ACTOR, look.needed_actors())


def _role(look: Look, mode: Mode, type: ConditionType, role: Role, needed: int) -> Said:
    ready = look.ready(role)
    if mode not in (Mode.RUNNING, Mode.ACCEPTING) and not look.alive(role):
        return false(type, Reason.PODS_STOPPED, "nothing of it runs")
    if ready >= needed:
        return true(type, Reason.PODS_READY, f"{needed} needed")
    reason, culprits = _why(look, look.of(role, Phase.ABSENT, Phase.STARTING, Phase.DRAINING, Phase.EXITED))
    words = some(f"{m.name} ({m.waiting_message})" if m.waiting_message else m.name for m in culprits)
    return false(type, reason, f"{needed} needed; not ready: {words}" if words else f"{needed} needed, not all started")


def _why(look: Look, members: list[Member]) -> tuple[Reason, list[Member]]:
    """The worst that can be said of members that are not ready, and of whom."""
    known = look.remembered()
    groups: tuple[tuple[Reason, list[Member]], ...] = (
        (Reason.IMAGE_PULL_FAILED, [m for m in members if m.waiting is Reason.IMAGE_PULL_FAILED]),
        (Reason.UNSCHEDULABLE, [m for m in members if m.waiting is Reason.UNSCHEDULABLE]),
        (
            Reason.CRASH_LOOPING,
            [m for m in members if m.name in known and known[m.name].quick_ends >= LOOPING_ENDS],
        ),
        (Reason.RESTARTING, [m for m in members if m.failed or m.name in known]),
    )
    for reason, found in groups:
        if found:
            return reason, found
    return Reason.PODS_PENDING, members

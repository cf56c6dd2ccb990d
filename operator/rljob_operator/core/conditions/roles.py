"""ReplayReady, LearnerReady, InferenceReady and ActorsReady. A role that the job does not have has no condition."""

from rljob.api.conditions import ConditionType, Reason
from rljob.api.status_model import rfc3339

from rljob_operator.core.autoscaling.guards import UNSCHEDULABLE_SECONDS
from rljob_operator.core.conditions.update import ConditionUpdate, false, true, withdrawn
from rljob_operator.core.context import Mode, ReconcileContext, some
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.core.rules import places
from rljob_operator.core.rules.failures import CORE, LOOPING_ENDS, words

STUCK_SECONDS = UNSCHEDULABLE_SECONDS
"""An actor that finds no place or no image for so long is missing; before that a new node may be on its way."""


def replay(context: ReconcileContext, mode: Mode) -> ConditionUpdate:
    """Every shard serves."""
    if context.shards == 0:
        return withdrawn(ConditionType.REPLAY_READY)
    return _role(context, mode, ConditionType.REPLAY_READY, Role.REPLAY, context.shards)


def learner(context: ReconcileContext, mode: Mode) -> ConditionUpdate:
    """The learner serves."""
    return _role(context, mode, ConditionType.LEARNER_READY, Role.LEARNER, context.needed_of(Role.LEARNER))


def inference(context: ReconcileContext, mode: Mode) -> ConditionUpdate:
    """Every inference server of its own serves."""
    if context.inference_servers == 0:
        return withdrawn(ConditionType.INFERENCE_READY)
    return _role(context, mode, ConditionType.INFERENCE_READY, Role.INFERENCE, context.inference_servers)


def actors(context: ReconcileContext, mode: Mode) -> ConditionUpdate:
    """At least the smallest number of actors plays, and nothing keeps one of the others from it."""
    type, needed = ConditionType.ACTORS_READY, context.needed_actors()
    kept = stuck_actors(context) if mode is Mode.RUNNING and context.ready(Role.ACTOR) >= needed else []
    if not kept:
        return _role(context, mode, type, Role.ACTOR, needed)
    reason, words = _why(context, kept)
    counted = _counted(context, Role.ACTOR, context.ready(Role.ACTOR), _total(context, Role.ACTOR))
    return false(type, reason, f"{counted}, {needed} needed; not ready: {_in_words(words)}")


def stuck_actors(context: ReconcileContext) -> list[Member]:
    """Actors that should play and can't: for a minute there was no quota, place or image for them, they keep ending,
    they have been starting for longer than a whole job may, or nothing is known of them. One that merely starts, also after an
    end, is not among them.
    """
    known, without = context.remembered(), set(places.without_place(context))
    candidates = context.of(Role.ACTOR, Phase.ABSENT, Phase.STARTING, Phase.EXITED)
    looping = {name for name, each in known.items() if each.quick_ends >= LOOPING_ENDS}
    return [
        m
        for m in candidates
        if (m.name in looping and not m.asked and m.name not in without)
        or (m.phase is not Phase.EXITED and context.since(m.since_seconds) >= _patience_seconds(context, m))
    ] + [m for m in context.of(Role.ACTOR, Phase.READY) if m.node_lost]


def core_on_lost_nodes(context: ReconcileContext) -> list[str]:
    """A clause for each member that learning needs and whose node is lost; it names both."""
    found = [m for m in context.alive(*CORE) if m.node_lost]
    return [f"{m.name} is on {m.node_name}, which has stopped reporting (NotReady)" for m in found]


def needed_on_the_way(context: ReconcileContext) -> list[str]:
    """A clause for each member that is needed, and that has a node and does not come up there: why, or what tells why."""
    lacking = [role for role in Role if context.ready(role) < context.needed_of(role)]
    found = [m for role in lacking for m in context.of(role, Phase.STARTING) if m.placed]
    late = [
        m for m in found if m.pod_name and context.since(m.since_seconds) >= STUCK_SECONDS and not m.waiting_message
    ]
    return [f"{m.name}{because(m)}" for m in found if m.waiting_message] + [
        f"{m.name} has not come up since {rfc3339(m.since_seconds)}: kubectl describe pod {m.pod_name} says why"
        for m in late
    ]


def _patience_seconds(context: ReconcileContext, member: Member) -> float:
    return context.spec.startup_deadline_seconds if member.waiting is None else STUCK_SECONDS


def _role(context: ReconcileContext, mode: Mode, type: ConditionType, role: Role, needed: int) -> ConditionUpdate:
    ready = context.ready(role)
    if mode is not Mode.RUNNING and not context.alive(role):
        reason = Reason.PODS_PENDING if mode is Mode.ACCEPTING else Reason.PODS_STOPPED
        return false(type, reason, "nothing runs")
    lost = [m for m in context.of(role, Phase.READY) if m.node_lost and context.is_wanted(m)]
    if ready - len(lost) >= needed:
        return true(type, Reason.PODS_READY, _counted(context, role, ready, max(needed, _total(context, role))))
    without = set(places.without_place(context)) if role is Role.ACTOR else set()
    down = context.of(role, Phase.ABSENT, Phase.STARTING, Phase.DRAINING, Phase.EXITED)
    reason, culprits = _why(context, lost + [m for m in down if m.name not in without and context.is_wanted(m)])
    words = _in_words(culprits)
    return false(type, reason, f"{needed} needed; not ready: {words}" if words else f"{needed} needed, not all started")


def _counted(context: ReconcileContext, role: Role, up: int, wanted: int) -> str:
    """How many members serve, and how many of them Kubernetes does not show as ready, and why."""
    unready = [m for m in context.of(role, Phase.READY) if m.unready_seconds is not None and context.is_wanted(m)]
    only = f"up, {up - len(unready)} ready; up only: {_in_words(unready)}" if unready else "ready"
    return f"{up} of {wanted} {only}"


def not_ready(context: ReconcileContext) -> list[str]:
    """A clause for each member that has been up without being ready for a minute: since when, and why."""
    return [
        f"{m.name} has not been ready since {rfc3339(m.unready_seconds)}{because(m)}"
        for m in context.observed.members
        if m.unready_seconds is not None
        and m.role is not Role.EVALUATOR
        and context.since(m.unready_seconds) >= STUCK_SECONDS
    ]


def _total(context: ReconcileContext, role: Role) -> int:
    return context.status.autoscaling.desired_replicas if role is Role.ACTOR else context.needed_of(role)


def _in_words(members: list[Member]) -> str:
    return some(f"{m.name}{because(m)}" for m in members)


def because(member: Member) -> str:
    """Why it is not ready, in brackets; empty where no reason is known."""
    if member.node_lost:
        return f" ({member.node_name} has stopped reporting)"
    said = member.waiting_message or (words(member) if member.disrupted or member.failed else "")
    return f" ({said})" if said else ""


def _why(context: ReconcileContext, members: list[Member]) -> tuple[Reason, list[Member]]:
    """The worst state among members that are not ready, and which members are in it."""
    known = context.remembered()
    groups: tuple[tuple[Reason, list[Member]], ...] = (
        (Reason.NODE_LOST, [m for m in members if m.node_lost and m.phase is not Phase.EXITED]),
        (Reason.IMAGE_PULL_FAILED, [m for m in members if m.waiting is Reason.IMAGE_PULL_FAILED]),
        (Reason.QUOTA_EXCEEDED, [m for m in members if m.waiting is Reason.QUOTA_EXCEEDED]),
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

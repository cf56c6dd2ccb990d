"""Which members to start, to drain and to remove: what learning needs at once, then the other actors in waves; they leave in the
opposite order."""

from rljob.api.controller_memory import MemberMemory

from rljob_operator.core.context import Mode, ReconcileContext
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.core.rules import failures, places

STARTUP_WAVE = 32
"""Actors that may be starting at once: each asks the learner for weights, its image from a registry and its node for room."""

LEFT_BEHIND_SECONDS = 10.0
"""So long a process of the learner may run without one of the others: they are started one after the other."""

_DRAIN_WAVES: tuple[tuple[Role, ...], ...] = (
    (Role.ACTOR, Role.EVALUATOR),
    (Role.LEARNER, Role.INFERENCE),
    (Role.REPLAY,),
)


# ----------------------------------------------------------------------------------------------------------- coming up


def to_start(context: ReconcileContext) -> tuple[str, ...]:
    """Members that should run, do not, and are to start now.

    Replay, learner, inference servers and the smallest number of actors start at once: each waits for those that it needs, and
    one half of a job must not hold resources that the other half waits for. All else starts once these have a place. Each member
    comes back on its own, whatever else is down.
    """
    names = _missing(context, Role.REPLAY, [f"replay-{k}" for k in range(context.shards)])
    learners = _missing(context, Role.LEARNER, context.spec.learner.members)
    names += learners if len(learners) == context.spec.learner.processes else []  # all together, in one epoch
    names += _missing(context, Role.INFERENCE, [f"inference-{k}" for k in range(context.inference_servers)])
    names += _next_wave(context)
    if _core_has_places(context) and context.spec.evaluator.enabled:
        names += _missing(context, Role.EVALUATOR, ["evaluator"])
    return tuple(names)


def _missing(context: ReconcileContext, role: Role, wanted: list[str]) -> list[str]:
    """Those of ``wanted`` that do not run and may be started now."""
    seen = {m.name: m for m in context.of(role)}
    known = context.remembered() if context.memory.members else {}
    return [name for name in wanted if _startable(context, name, seen.get(name), known)]


def _startable(context: ReconcileContext, name: str, member: Member | None, known: dict[str, MemberMemory]) -> bool:
    if member is not None and (member.held or member.phase not in (Phase.ABSENT, Phase.EXITED)):
        return False
    return failures.restart_due(context, member, known.get(name)) <= 0


def _next_wave(context: ReconcileContext) -> list[str]:
    """Actors to start, no more than may be starting at once: first those that ended unasked, then new ones."""
    room = STARTUP_WAVE - context.count(Role.ACTOR, Phase.STARTING)
    if room <= 0:
        return []
    back, fresh = places.vacancies(context)
    if not _core_has_places(context):
        fresh = fresh[: max(0, context.needed_actors() - len(context.alive(Role.ACTOR)) - len(back))]
    return _missing(context, Role.ACTOR, [*back, *fresh])[:room]


def _core_has_places(context: ReconcileContext) -> bool:
    """Whether all that learning needs has a place, or was up already: then other members take no place from it."""
    return context.memory.placed is not None or context.memory.started is not None


# ---------------------------------------------------------------------------------------------------------- going down


def to_drain(context: ReconcileContext, mode: Mode) -> tuple[str, ...]:
    """Members to ask to leave in this mode."""
    if mode is Mode.RUNNING:
        return places.surplus(context) + _not_wanted(context) + _left_behind(context)
    if mode is Mode.SUSPENDING:
        suspension = context.memory.suspension
        saved = suspension is not None and suspension.saved
        return _next_to_leave(context, _DRAIN_WAVES if saved else _DRAIN_WAVES[:1])
    if mode is Mode.SESSION_ENDING:
        return _next_to_leave(context, _DRAIN_WAVES)
    if mode in (Mode.FINISHING, Mode.FINISHED):
        return tuple(m.name for m in _leaving_now(context) if m.phase is not Phase.DRAINING)
    return ()


def _next_to_leave(context: ReconcileContext, waves: tuple[tuple[Role, ...], ...]) -> tuple[str, ...]:
    """Members of the outermost wave that still has any: the learner goes after the actors, the replay after the learner."""
    for wave in waves:
        alive = context.alive(*wave)
        if alive:
            return tuple(m.name for m in alive if m.phase is not Phase.DRAINING)
    return ()


def _not_wanted(context: ReconcileContext) -> tuple[str, ...]:
    """The evaluator and inference servers that the spec no longer wants."""
    alive = context.alive(Role.REPLAY, Role.INFERENCE, Role.EVALUATOR)
    return tuple(m.name for m in alive if m.phase is not Phase.DRAINING and not context.is_wanted(m))


def _left_behind(context: ReconcileContext) -> tuple[str, ...]:
    """Processes of a learner of several, one of which has ended or never came: they can't go on, and start again with it. They
    end by themselves, so this is for one that hangs."""
    alive = context.alive(Role.LEARNER)
    if len(alive) >= context.spec.learner.processes:
        return ()
    return tuple(
        m.name for m in alive if m.phase is not Phase.DRAINING and context.since(m.since_seconds) >= LEFT_BEHIND_SECONDS
    )


def _leaving_now(context: ReconcileContext) -> list[Member]:
    """Wave by wave."""
    for wave in _DRAIN_WAVES:
        alive = context.alive(*wave)
        if alive:
            return alive
    return []


def to_remove(context: ReconcileContext, mode: Mode) -> tuple[str, ...]:
    """Ended members whose remains go: those that were asked to leave, and those for which there is no place any more; after a
    job's success all. After its failure those that ended by themselves stay for their logs, but for what is being deleted: such a
    pod would keep its node from being emptied."""
    if not context.observed.keeps_remains:
        return ()
    if mode in (Mode.FINISHING, Mode.FINISHED):
        outcome = context.memory.outcome
        everything = outcome is None or outcome.state == "Complete"
        ended = (m for m in context.observed.members if m.phase is Phase.EXITED)
        return tuple(m.name for m in ended if everything or m.asked or m.deleted)
    without = set(places.without_place(context)) if mode is Mode.RUNNING else set()
    without |= {m.name for m in context.failed() if not context.is_wanted(m)}
    return tuple(m.name for m in context.observed.members if m.phase is Phase.EXITED and (m.asked or m.name in without))


def ttl_seconds_left(context: ReconcileContext) -> float | None:
    """Seconds until a finished job is deleted; None where it is kept."""
    ttl, ended = context.spec.ttl_seconds_after_finished, context.status.completion_time
    if ttl is None or ended is None or not context.observed.keeps_remains:
        return None
    return max(0.0, ttl - context.since(ended))

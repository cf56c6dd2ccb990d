"""Which actors have the places: which ended ones are started again, which new ones are added, and which ones go; and when those
that end again and again before they work are too many for the job to go on."""

from itertools import count, islice
from typing import Any

from rljob.api.conditions import Reason
from rljob.api.controller_memory import MAX_REMEMBERED_MEMBERS, MemberMemory, OutcomeMemory

from rljob_operator.core.context import ReconcileContext, failed
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.core.rules import failures
from rljob_operator.core.rules.failures import QUICK_ENDS_OF_A_CRASH_LOOP, exit_code, with_code


def vacancies(context: ReconcileContext) -> tuple[list[str], list[str]]:
    """(actors that ended unasked and may come back, names for new ones) to bring the number to the wanted one.

    A draining actor is on its way out and leaves its name only when it is gone.
    """
    known = context.remembered()
    back = _ended(context, known)
    if back:
        leaving = set(_leaving(context, known))
        back = [name for name in back if name not in leaving]
    free = context.allowed_actors() - _count_running(context) - len(back)
    if free <= 0:
        return back, []
    taken = set(back) | {m.name for m in (*context.alive(Role.ACTOR), *context.failed(Role.ACTOR))}
    unused = (name for name in map("actor-{}".format, count()) if name not in taken)
    return back, list(islice(unused, free))


def surplus(context: ReconcileContext) -> tuple[str, ...]:
    """Actors to drain so that the wanted number is left; `_stays` has their order."""
    known = context.remembered()
    leaving = _leaving(context, known)
    ended = set(_ended(context, known)) if leaving else ()
    return tuple(name for name in leaving if name not in ended)


def dismiss(context: ReconcileContext) -> ReconcileContext:
    """Write down which ended actors have no place any more: they are not started again and count nowhere.

    One that gets a place again begins anew. Until then it is remembered for as long as its end can be seen.
    """
    known = context.remembered()
    if not any(Role.of(name) is Role.ACTOR for name in known):
        return context
    ended, leaving = set(_ended(context, known)), set(_leaving(context, known))
    changed = {
        each.name: _with_place(each, each.name not in leaving)
        for each in context.memory.members
        if each.name in ended and each.dismissed != (each.name in leaving)
    }
    if not changed:
        return context
    there = {m.name for m in context.failed(Role.ACTOR)}
    members = [changed.get(each.name, each) for each in context.memory.members]
    return context.with_memory(members=[each for each in members if not each.dismissed or each.name in there])


def _with_place(each: MemberMemory, has_place: bool) -> MemberMemory:
    anew = {"quick_ends": 0, "vain_starts": 0} if has_place else {}
    return each.model_copy(update={"dismissed": not has_place, **anew})


def placed(context: ReconcileContext) -> set[str]:
    """The names of the actors that run or are to be started again; those that leave have no place any more."""
    known = context.remembered()
    return ({m.name for m in _running(context)} | set(_ended(context, known))).difference(_leaving(context, known))


def without_place(context: ReconcileContext) -> tuple[str, ...]:
    """Actors that have ended and are not started again, because fewer are wanted."""
    if not context.count(Role.ACTOR, Phase.EXITED):
        return ()
    leaving = set(_leaving(context, context.remembered()))
    return tuple(m.name for m in context.failed(Role.ACTOR) if m.name in leaving)


def _lags(context: ReconcileContext) -> dict[str, float]:
    """How many published versions each actor's weights are behind the freshest actor's, by its name."""
    learner = context.observed.learner
    versions = {actor.name: actor.policy_version for actor in learner.actors} if learner is not None else {}
    newest = max(versions.values(), default=0)
    return {name: float(newest - version) for name, version in versions.items()}


def _leaving(context: ReconcileContext, known: dict[str, MemberMemory]) -> tuple[str, ...]:
    """Who has no place where there are more actors, running or to be started again, than places."""
    ended = _ended(context, known)
    too_many = _count_running(context) + len(ended) - context.allowed_actors()
    if too_many <= 0:
        return ()
    lags, running = _lags(context), {m.name: m for m in _running(context)}
    candidates = sorted([*running, *ended], key=lambda name: _stays(name, running.get(name), known.get(name), lags))
    return tuple(candidates[:too_many])


def _stays(name: str, member: Member | None, ended: MemberMemory | None, lags: dict[str, float]) -> tuple[Any, ...]:
    """By what actors are sorted: those that are dismissed go first, then those that loop, that have ended (``member`` is None),
    that are not ready, whose node goes, that play with the stalest policy, that are the youngest. So an actor that plays is never
    drained for one that only ends again and again."""
    loops = ended is not None and ended.quick_ends >= failures.LOOPING_ENDS
    if member is None:
        return not (ended is not None and ended.dismissed), not loops, False, False, True, 0.0, 0.0, name
    lag, started = lags.get(name, lags.get(member.pod_name, 0.0)), member.ready_seconds or member.since_seconds
    return True, not loops, True, member.phase is Phase.READY, not member.leaving_node, -lag, -started, name


def _running(context: ReconcileContext) -> list[Member]:
    return context.of(Role.ACTOR, Phase.STARTING, Phase.READY)


def _count_running(context: ReconcileContext) -> int:
    return context.count(Role.ACTOR, Phase.STARTING) + context.ready(Role.ACTOR)


def _ended(context: ReconcileContext, known: dict[str, MemberMemory]) -> list[str]:
    """Actors that ended unasked and would be started again, also those whose remains were removed meanwhile."""
    failed = context.failed(Role.ACTOR)
    found = [m.name for m in failed]
    actors = [each for each in known.values() if Role.of(each.name) is Role.ACTOR]
    gone = [each.name for each in actors if failures.restart_due(context, None, each) > 0]
    if gone:
        there = {m.name for m in context.of(Role.ACTOR) if m.phase is not Phase.ABSENT}
        found += [name for name in gone if name not in there]
    return found


def actors_crash_looping(context: ReconcileContext) -> OutcomeMemory | None:
    """More than half of the actors end again and again before they work.

    Only actors that have a place count: those that are leaving, or that fewer actors leave no place for, do no harm. Once
    the job was up, places that are empty for a moment count as well, since a lost node takes healthy actors with it.
    """
    actors = [each for each in context.memory.members if Role.of(each.name) is Role.ACTOR]
    looping = [each.name for each in actors if each.quick_ends >= QUICK_ENDS_OF_A_CRASH_LOOP]
    if not looping:
        return None
    with_place = placed(context)
    looping = [name for name in looping if name in with_place]
    count = len(with_place) if context.memory.started is None else max(len(with_place), context.allowed_actors())
    more_than_known = len(context.memory.members) >= MAX_REMEMBERED_MEMBERS
    too_many = 2 * len(looping) > count
    if not too_many and not (more_than_known and len(looping) == len(actors)):
        return None
    names = set(looping)
    worst = next((f for f in reversed(context.status.failures) if f.role == "Actor"), None)
    seen = next((m for m in context.failed(Role.ACTOR) if m.name in names and m.last_words), None)
    words = seen.last_words if seen is not None else (worst.message if worst is not None else "")
    code = exit_code(seen) if seen is not None else (worst.exit_code if worst is not None else None)
    return failed(
        context,
        Reason.ACTORS_CRASH_LOOPING,
        f"{len(looping)} of {count} actors keep ending before they work; "
        f"{seen.name if seen is not None else looping[0]} ended{with_code(code)}: {words}",
    )

"""Which members to start, to drain and to remove: replay, then the learner, then inference servers, then actors
in waves; and the same backwards."""

from __future__ import annotations

from rljob.api.controller_memory import MemberMemory

from rljob_operator.core.context import Look, Mode
from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.core.rules import failures, places

_DRAIN_WAVES: tuple[tuple[Role, ...], ...] = (
    (Role.ACTOR, Role.EVALUATOR),
    (Role.LEARNER, Role.INFERENCE),
    (Role.REPLAY,),
)


# ----------------------------------------------------------------------------------------------------------- coming up


def to_start(look: Look) -> tuple[str, ...]:
    """Members that should run, do not, and whose turn it is.

    While the job comes up, a role starts only when the one before it is ready, since it would only wait for it; once all were
    up, each member comes back on its own, whatever else is down.
    """
    if look.desired.refusal is not None and look.desired.refusal.blocking:
        return ()
    names = _missing(look, Role.REPLAY, [f"replay-{k}" for k in range(look.shards)])
    in_order = look.memory.started is None
    if in_order and look.ready(Role.REPLAY) < look.shards:
        return tuple(names)
    names += _missing(look, Role.LEARNER, ["learner"])
    if in_order and not look.learner_ready():
        return tuple(names)
    names += _missing(look, Role.INFERENCE, [f"inference-{k}" for k in range(look.inference_servers)])
    if in_order and look.ready(Role.INFERENCE) < look.inference_servers:
        return tuple(names)
    names += _next_wave(look)
    if look.spec.evaluator.enabled:
        names += _missing(look, Role.EVALUATOR, ["evaluator"])
    return tuple(names)


def _missing(look: Look, role: Role, wanted: list[str]) -> list[str]:
    """Those of ``wanted`` that do not run and may be started now."""
    seen = {m.name: m for m in look.of(role)}
    known = look.remembered() if look.memory.members else {}
    return [name for name in wanted if _startable(look, name, seen.get(name), known)]


def _startable(look: Look, name: str, member: Member | None, known: dict[str, MemberMemory]) -> bool:
    if member is not None and member.phase not in (Phase.ABSENT, Phase.EXITED):
        return False
    return failures.restart_due(look, member, known.get(name)) <= 0


def _next_wave(look: Look) -> list[str]:
    """Actors to start, no more than may be starting at once: first those that ended unasked, then new ones."""
    room = look.spec.actors.startup_wave - look.count(Role.ACTOR, Phase.STARTING)
    if room <= 0:
        return []
    back, fresh = places.vacancies(look)
    return (_missing(look, Role.ACTOR, back) + fresh)[:room]


# ---------------------------------------------------------------------------------------------------------- going down


def to_drain(look: Look, mode: Mode) -> tuple[str, ...]:
    """Members to ask to leave in this mode."""
    if mode is Mode.RUNNING:
        return places.surplus(look) + _not_wanted(look)
    if mode is Mode.SUSPENDING:
        suspension = look.memory.suspension
        saved = suspension is not None and suspension.saved
        return _next_to_leave(look, _DRAIN_WAVES if saved else _DRAIN_WAVES[:1])
    if mode is Mode.SESSION_ENDING:
        return _next_to_leave(look, _DRAIN_WAVES)
    if mode in (Mode.FINISHING, Mode.FINISHED):
        return tuple(m.name for m in _leaving_now(look) if m.phase is not Phase.DRAINING)
    return ()


def _next_to_leave(look: Look, waves: tuple[tuple[Role, ...], ...]) -> tuple[str, ...]:
    """Members of the outermost wave that still has any: the learner goes after the actors, the replay after the learner."""
    for wave in waves:
        alive = look.alive(*wave)
        if alive:
            return tuple(m.name for m in alive if m.phase is not Phase.DRAINING)
    return ()


def _not_wanted(look: Look) -> tuple[str, ...]:
    """An evaluator, and servers, that the spec no longer wants."""
    alive = look.alive(Role.REPLAY, Role.INFERENCE, Role.EVALUATOR)
    return tuple(m.name for m in alive if m.phase is not Phase.DRAINING and not look.is_wanted(m))


def must_leave(look: Look) -> bool:
    """Whether a job whose end is decided still has members that go before it is Complete or Failed."""
    if _cleanup(look) == "None" or stays_seconds(look) > 0:
        return bool(look.alive(Role.LEARNER))
    return bool(look.alive())


def _leaving_now(look: Look) -> list[Member]:
    """Wave by wave; what podCleanup lets stay stays, but never the learner, which holds the accelerator."""
    if _cleanup(look) == "None" or stays_seconds(look) > 0:
        return look.alive(Role.LEARNER)
    for wave in _DRAIN_WAVES:
        alive = look.alive(*wave)
        if alive:
            return alive
    return []


def to_remove(look: Look, mode: Mode) -> tuple[str, ...]:
    """Ended members whose remains go: those that were asked to leave, and those for which there is no place any more; after a
    job's end what podCleanup says."""
    if not look.observed.keeps_remains:
        return ()
    if mode in (Mode.FINISHING, Mode.FINISHED):
        if _cleanup(look) != "All" or stays_seconds(look) > 0:
            return ()
        return tuple(m.name for m in look.observed.members if m.phase is Phase.EXITED)
    without = set(places.without_place(look)) if mode is Mode.RUNNING else set()
    without |= {m.name for m in look.failed() if not look.is_wanted(m)}
    return tuple(m.name for m in look.observed.members if m.phase is Phase.EXITED and (m.asked or m.name in without))


def _cleanup(look: Look) -> str:
    outcome, policy = look.memory.outcome, look.spec.pod_cleanup
    if not look.observed.keeps_remains or outcome is None:
        return "All"
    return policy.on_complete if outcome.state == "Complete" else policy.on_failed


def stays_seconds(look: Look) -> float:
    """How long members may still stay by podCleanup.afterSeconds."""
    outcome = look.memory.outcome
    if not look.observed.keeps_remains or outcome is None:
        return 0.0
    return look.spec.pod_cleanup.after_seconds - look.since(outcome.time)


def ttl_seconds_left(look: Look) -> float | None:
    """Seconds until a finished job is deleted; None where it is kept."""
    ttl, ended = look.spec.ttl_seconds_after_finished, look.status.completion_time
    if ttl is None or ended is None or not look.observed.keeps_remains:
        return None
    return max(0.0, ttl - look.since(ended))

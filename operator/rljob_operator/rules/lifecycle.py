"""What to start and what to drain: replay, then the learner, then inference servers, actors and the evaluator; and the same
backwards."""

from __future__ import annotations

from rljob.api import RLJob

from rljob_operator.model import Member, Observation, Phase, Role, State

RESTART_DELAY_SECONDS = (0.0, 0.5, 1.0, 2.0, 4.0)
"""Wait before the n-th restart in a row of a member that ended before it worked; the last holds from there on."""

_DRAIN_WAVES: tuple[frozenset[Role], ...] = (
    frozenset({Role.ACTOR, Role.EVALUATOR}),
    frozenset({Role.LEARNER, Role.INFERENCE}),
    frozenset({Role.REPLAY}),
)


def to_start(job: RLJob, observation: Observation, now_seconds: float) -> tuple[str, ...]:
    """Members that should run, do not, and whose turn it is.

    A role starts for the first time only when the role before it is ready, since it would only wait for it otherwise; once
    the whole job has been up, each member comes back on its own, whatever else is down.
    """
    names: list[str] = []
    for role in Role:
        members = observation.of(role)
        names += [m.name for m in members if _due(m, now_seconds)]
        settled = all(m.phase is Phase.READY or m.exits for m in members)
        if role in (Role.REPLAY, Role.LEARNER) and not settled:
            break
    return tuple(names)


def to_drain(observation: Observation) -> tuple[str, ...]:
    """Members of the outermost wave that still has any: the learner goes after the actors, the replay after the learner."""
    for wave in _DRAIN_WAVES:
        alive = [m for m in observation.members if m.role in wave and _alive(m)]
        if alive:
            return tuple(m.name for m in alive if m.phase is not Phase.DRAINING)
    return ()


def still_there(observation: Observation) -> bool:
    """Whether anything of the job is left to stop."""
    return any(_alive(member) for member in observation.members)


def state(job: RLJob, observation: Observation) -> State:
    """Starting until the learner learns, then Running."""
    return State.RUNNING if int(observation.figure("updates", 0)) > 0 else State.STARTING


def _alive(member: Member) -> bool:
    return member.phase in (Phase.STARTING, Phase.READY, Phase.DRAINING)


def _due(member: Member, now_seconds: float) -> bool:
    if member.phase is Phase.ABSENT:
        return True
    if member.phase is not Phase.EXITED:
        return False
    delay = RESTART_DELAY_SECONDS[min(member.quick_exits, len(RESTART_DELAY_SECONDS) - 1)]
    return now_seconds - member.since_seconds >= delay

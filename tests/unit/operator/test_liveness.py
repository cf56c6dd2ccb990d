"""What good comes of it: a healthy job gets to Running and stays there, and so does every job once its world is healthy again."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from rljob_operator.core.member import Phase, Role

from tests.unit.operator.invariants import check, running_actors, wanted_names
from tests.unit.operator.plans import EVERY_FAULT, Fault, Plan, plans
from tests.unit.operator.world import World

PATIENT = EVERY_FAULT - {Fault.SUCCESS, Fault.FATAL, Fault.LOOP}
"""All but what is meant to end a job; deadlines and the limit on failures are far away."""

LOOKS_TO_COME_BACK = 60
"""Looks of five seconds: the longest wait before a start is 30 seconds, and roles start one after the other; where they had
started with something else than the job now says, they leave first, one after the other, too."""

LOOKS_TO_STAY = 30

LOOKS_TO_LEAVE = 30
"""Three waves one after the other; at a look 60 % of those that were asked to leave do."""


def on(world: World) -> None:
    """One more look at a world that is well, with all that must hold at each."""
    world.turn()
    seen, decision = world.look()
    check(world, seen, decision)
    world.apply(decision)


def gets_to_running_and_stays(world: World) -> None:
    """Running in time; from then on nothing ends or is counted, and there is what the spec wants and no more."""
    for _ in range(LOOKS_TO_COME_BACK):
        on(world)
        if world.status.state == "Running":
            break
    assert world.status.state == "Running", world.status.conditions
    counted = world.status.restarts.ignored
    for look in range(LOOKS_TO_STAY):
        on(world)
        assert world.status.state == "Running", f"{look} looks later: {world.status.conditions}"
    assert world.status.restarts.ignored == counted
    assert world.status.restarts.counted == 0, "a healthy core is forgiven"
    seen = world.seen()
    alive = {m.name for m in seen.observed.members if m.alive}
    assert {n for n in alive if Role.of(n) is not Role.ACTOR} == wanted_names(world.job)
    kept_away = sum(each.abandoned for each in world.status.controller.members)
    here = [m for m in running_actors(seen) if m.phase is Phase.READY]
    assert len(here) == world.status.autoscaling.desired_replicas - kept_away


@settings(max_examples=15)
@given(plans(faults=frozenset()))
def test_a_healthy_job_gets_to_running_and_stays(plan: Plan) -> None:
    world = World(plan)
    world.heal()
    gets_to_running_and_stays(world)
    lives = Counter(m.name for m in world.seen().observed.members)
    assert world.life <= len(lives) + sum(m.phase is Phase.EXITED for m in world.members.values()) + 20
    assert (world.status.failures, world.status.controller.members) == ([], [])


@settings(max_examples=30)
@given(plans(faults=PATIENT), st.integers(5, 80))
def test_a_job_comes_back_from_whatever_was_done_to_it(plan: Plan, looks: int) -> None:
    world = World(plan)
    for _ in range(looks):
        on(world)
    world.heal()
    gets_to_running_and_stays(world)


@settings(max_examples=15)
@given(plans(), st.integers(5, 80))
def test_a_job_whose_end_is_decided_gets_there(plan: Plan, looks: int) -> None:
    world = World(plan)
    for _ in range(looks):
        on(world)
    world.heal()
    for _ in range(LOOKS_TO_COME_BACK):
        if world.status.controller.outcome is not None:
            break
        on(world)
    else:
        assert world.status.state not in ("Finishing", "Complete", "Failed")
        return
    for _ in range(LOOKS_TO_LEAVE):
        on(world)
    assert world.status.finished
    assert not any(m.alive for m in world.members.values())

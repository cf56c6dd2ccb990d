"""A world that does whatever it likes to a job (`world`), and what must hold at every look at it (`invariants`).

`python -m tests.unit.operator.test_properties 60` walks for a minute and prints how many looks it took and what they cost
(`docs/performance.md` has the figures).
"""

import json
import sys
import time
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import example, given, settings, strategies as st
from rljob.api.conditions import CATALOGUE, ConditionType
from rljob_operator.core.member import Phase, Role

from tests.support.controller import decided
from tests.unit.operator.invariants import check, running_actors, wanted_names
from tests.unit.operator.plans import EVERY_FAULT, Fault, Plan, plan_of, plans
from tests.unit.operator.world import World

LOOKS = 120

PLACE_GIVEN_AWAY = Plan(faults=frozenset({Fault.LOOP, Fault.MACHINE, Fault.DISRUPT}), seed=7)
"""At look 37 fewer actors are wanted: one that loops is asked to leave and one that had ended is started, both at once."""


def walk(plan: Plan, looks: int) -> tuple[int, set[str]]:
    """One job's life; answers how many looks it took and the states it went through."""
    world, states = World(plan), set[str]()
    for look in range(looks):
        world.turn()
        seen, decision = world.look()
        check(world, seen, decision)
        if look % 4 == 0:
            assert decision == decided(seen), "the same look gives the same decision"
        world.apply(decision)
        states.add(decision.status.state)
        if decision.delete_job:
            return look + 1, states
    return looks, states


@settings(max_examples=60)
@given(plans(), st.integers(10, LOOKS))
@example(PLACE_GIVEN_AWAY, 37)
def test_what_holds_at_every_look_whatever_happens(plan: Plan, looks: int) -> None:
    walk(plan, looks)


@pytest.mark.timeout(300)
@settings(max_examples=4)
@given(plans(actors=2000), st.integers(10, 30))
def test_it_holds_of_two_thousand_actors_too(plan: Plan, looks: int) -> None:
    walk(plan, looks)


def test_the_walks_go_everywhere() -> None:
    walks = [walk(plan_of(seed), LOOKS) for seed in range(40)]
    ready = {entry.reason.value for entry in CATALOGUE if entry.type is ConditionType.READY}
    assert set.union(*(states for _, states in walks)) == ready - {"TurnFailed"}, "which the core never says"
    assert sum(looks for looks, _ in walks) > 3000, "of 4800: few are cut short"


@settings(max_examples=40)
@given(plans(), st.integers(5, LOOKS))
@example(plan_of(41), 60)  # an actor that vanished and then lost its place
@example(plan_of(308), 60)
@example(plan_of(2572), 60)  # a sample from before a suspension
def test_deciding_twice_on_the_same_world_decides_nothing_new(plan: Plan, looks: int) -> None:
    """Nothing is applied and no time passes between the two, so there is nothing to be said that was not said at the first."""
    world = World(plan)
    for _ in range(looks):
        world.turn()
        seen, first = world.look()
        second = decided(replace(seen, status=first.status))
        assert second.status.restarts == first.status.restarts, "each end is counted once"
        assert second.status.failures == first.status.failures
        memory = second.status.controller.model_copy(update={"learner_epoch": first.status.controller.learner_epoch})
        assert second.status.model_copy(update={"controller": memory}) == first.status, (
            "all but the epoch of a next learner"
        )
        assert (second.start, second.drain, second.remove) == (first.start, first.drain, first.remove)
        world.apply(first)
        if first.delete_job:
            return


def run(seconds: float) -> tuple[int, set[str]]:
    """Walk for a time; answers the number of looks and the states that the walks went through."""
    done, states, seed = 0, set[str](), 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        looks, seen = walk(plan_of(seed), LOOKS)
        done, seed = done + looks, seed + 1
        states |= seen
    return done, states


if __name__ == "__main__":
    length = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    began = time.thread_time()
    looks_done, ended = run(length)
    print(
        json.dumps(
            {
                "cases": looks_done,
                "seconds": length,
                "cases_per_minute": 60 * looks_done / length,
                "cpu_seconds": time.thread_time() - began,
                "faults": len(EVERY_FAULT),
                "states": sorted(ended),
            }
        )
    )


pytestmark = pytest.mark.usefixtures("soon_forgiven")

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
    here = [m for m in running_actors(seen) if m.phase is Phase.READY]
    assert len(here) == world.status.autoscaling.desired_replicas


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

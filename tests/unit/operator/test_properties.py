"""A world that does whatever it likes to a job (`world`), and what must hold at every look at it (`invariants`).

`python -m tests.unit.operator.test_properties 60` walks for a minute and prints how many looks it took and what they cost
(`docs/performance.md` has the figures).
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rljob.api.conditions import CATALOGUE, ConditionType

from tests.support.controller import decided
from tests.unit.operator.invariants import check
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

"""Which actors hold the places: those that keep ending leave first, and who has no place counts nowhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rljob.api.conditions import Reason
from rljob_operator.core.member import Member, Phase
from rljob_operator.core.rules.failures import QUICK_ENDS_OF_A_CRASH_LOOP

from tests.support.controller import Controller, exited, make_job, member, members, running

LOOPING = [f"actor-{k}" for k in range(5)]
EXTERNAL = "spec.autoscaling={mode: External, minReplicas: 1, maxReplicas: 20}"


def half_of_ten_loop(*sets: str, **world: object) -> Controller:
    """Ten actors, of which the first five have ended five times in a row, which is allowed; they wait for their next start."""
    controller = running("spec.actors.replicas=10", *sets, members=members(10), **world)
    for life in range(QUICK_ENDS_OF_A_CRASH_LOOP):
        seen = members(10)
        for name in LOOPING:
            ended = {"incarnation": f"{name}-{life}", "since_seconds": controller.now + 40.0, "ready_seconds": None}
            seen = exited(name, seen, **ended)
        assert controller.look(40.0, members=seen).outcome is None
    return controller


def scaled(controller: Controller, replicas: int, *sets: str) -> Controller:
    controller.job = make_job(f"spec.actors.replicas={replicas}", *sets)
    return controller


def without(controller: Controller, *names: str) -> tuple[Member, ...]:
    return tuple(m for m in controller.world["members"] if m.name not in names)


@pytest.mark.parametrize(("sets", "replicas"), [((), 4), ((EXTERNAL,), 3)])
def test_looping_actors_no_longer_count_after_a_scale_down(sets: tuple[str, ...], replicas: int) -> None:
    controller = scaled(half_of_ten_loop(*sets, keeps_remains=True), replicas, *sets)
    decision = controller.look(1.0)
    assert decision.outcome is None
    assert len(decision.drain) == 5 - replicas, "healthy ones go only as far as even they are too many"
    assert not set(decision.drain) & set(LOOPING)
    assert set(decision.remove) == set(LOOPING)
    for _ in range(3):
        decision = controller.look(30.0, members=without(controller, *decision.drain))
        assert (decision.outcome, decision.start, decision.drain) == (None, (), ())
    assert controller.reason("ActorsReady") == ("True", "PodsReady")
    assert controller.status.restarts.ignored == 25, "their ends are still in sight and are not counted again"
    decision = controller.look(1.0, members=without(controller, *LOOPING))
    assert controller.status.controller.members == [], "what is gone and not wanted is forgotten"


def test_an_actor_that_gets_a_place_again_begins_anew() -> None:
    controller = scaled(half_of_ten_loop(), 4)
    decision = controller.look(1.0)
    controller.look(1.0, members=without(controller, *decision.drain))
    decision = scaled(controller, 9).look(1.0)
    assert decision.outcome is None
    assert set(decision.start) == set(LOOPING), "at once, whatever they waited for before"


def test_an_actor_that_loops_leaves_before_one_that_plays_whatever_its_phase() -> None:
    controller = half_of_ten_loop()
    coming = {"actor-0": Phase.READY, "actor-1": Phase.STARTING}
    now = controller.now + 1.0
    seen = tuple(
        replace(m, phase=coming[m.name], incarnation="new", since_seconds=now, ready_seconds=now, exit_code=None)
        if m.name in coming
        else m
        for m in controller.world["members"]
    )
    decision = scaled(controller, 5).look(1.0, members=seen)
    assert (set(decision.drain), decision.start) == ({"actor-0", "actor-1"}, ())


def test_actors_that_ended_once_come_back_instead_of_those_that_loop() -> None:
    controller = half_of_ten_loop()
    seen = controller.world["members"]
    for k in (5, 6):
        seen = exited(f"actor-{k}", seen, since_seconds=controller.now + 1.0)
    decision = scaled(controller, 5).look(1.0, members=seen)
    assert (decision.start, decision.drain) == (("actor-5", "actor-6"), ())


def test_the_place_of_one_that_loops_is_given_in_one_look_to_one_that_ended_once() -> None:
    controller = half_of_ten_loop()
    coming = {"phase": Phase.STARTING, "incarnation": "new", "since_seconds": controller.now + 1.0, "exit_code": None}
    seen = tuple(replace(m, **coming) if m.name == "actor-0" else m for m in controller.world["members"])
    decision = scaled(controller, 5).look(1.0, members=exited("actor-5", seen, since_seconds=controller.now + 1.0))
    assert (decision.start, decision.drain) == (("actor-5",), ("actor-0",))


def test_too_many_of_those_that_are_left_still_fail_the_job() -> None:
    controller = scaled(half_of_ten_loop(), 9)
    assert controller.look(1.0).outcome is None, "four of nine"
    decision = controller.look(1.0, members=without(controller, "actor-5", "actor-6"))
    assert decision.outcome is None, "two places are empty for a moment"
    life = {"incarnation": "last", "since_seconds": controller.now, "ready_seconds": None}
    for again in range(QUICK_ENDS_OF_A_CRASH_LOOP):
        assert decision.outcome is None
        ended = exited("actor-7", controller.world["members"], **(life | {"incarnation": f"again-{again}"}))
        decision = controller.look(1.0, members=ended)
    assert decision.outcome.reason == "ActorsCrashLooping"
    assert decision.outcome.message.startswith("5 of 9 actors keep ending before they work; ")


def test_a_lost_node_leaves_one_looping_actor_in_sight_and_the_job_goes_on() -> None:
    controller = running("spec.actors.replicas=10", members=members(10))
    seen = members(10)
    for life in range(QUICK_ENDS_OF_A_CRASH_LOOP):
        ended = {"incarnation": f"life-{life}", "since_seconds": controller.now + 40.0, "ready_seconds": None}
        seen = exited("actor-0", members(10), **ended)
        controller.look(40.0, members=seen)
    decision = controller.look(1.0, members=tuple(m for m in seen if m.role != "actor" or m.name == "actor-0"))
    assert decision.outcome is None
    assert len(decision.start) == 9


def test_an_evicted_actor_comes_back_when_evictions_are_no_longer_ignored() -> None:
    controller = running("spec.actors.onEviction=Ignore")
    assert controller.look(members=exited("actor-0", members(), disrupted="evicted", exit_code=143)).start == ()
    controller.job = make_job()
    assert controller.look(1.0).start == ("actor-0",)


def test_what_is_started_again_is_not_removed() -> None:
    seen = tuple(replace(m, phase=Phase.EXITED, asked=True) if m.name == "actor-0" else m for m in members())
    decision = running(keeps_remains=True).look(1.0, members=seen)
    assert (decision.start, decision.remove) == (("actor-0",), ())


# -------------------------------------------------------------------------------------------------- who is said to be missing


def stuck(count: int, since: float) -> tuple[Member, ...]:
    waiting = {"waiting": Reason.UNSCHEDULABLE, "waiting_message": "0/3 nodes are available", "since_seconds": since}
    names = (f"actor-{k}" for k in range(1, count + 1))
    return (*members(1), *(member(name, Phase.STARTING, **waiting) for name in names))


def test_actors_that_find_no_place_are_missed() -> None:
    controller = running("spec.actors.replicas=16", members=members(16))
    controller.look(30.0, members=stuck(15, controller.now))
    assert controller.status.state == "Running", "a new node may be on its way"
    controller.look(31.0)
    assert controller.reason("Ready") == ("True", "Degraded")
    ready = controller.status.condition("Ready")
    assert "15 of 16 actors are not ready (Unschedulable, actor-1, actor-2, actor-3 and 12 more)" in ready.message
    assert controller.reason("ActorsReady") == ("False", "Unschedulable")
    actors = controller.status.condition("ActorsReady")
    assert actors.message.startswith("1 of 16 ready, and 1 would do; not ready: actor-1 (0/3 nodes are available), ")


def test_actors_that_start_for_longer_than_a_whole_job_may_are_missed() -> None:
    controller = running(*("spec.startupDeadlineSeconds=100", "spec.progressDeadlineSeconds=100000"))
    seen = tuple(
        replace(m, phase=Phase.STARTING, since_seconds=controller.now) if m.name == "actor-1" else m for m in members()
    )
    controller.look(90.0, members=seen)
    assert controller.reason("ActorsReady") == ("True", "PodsReady")
    controller.look(11.0)
    assert controller.reason("ActorsReady") == ("False", "PodsPending")


def test_actors_that_come_back_are_not_missed() -> None:
    controller = running()
    controller.look(1.0, members=exited("actor-0", members()))
    assert controller.status.state == "Running"

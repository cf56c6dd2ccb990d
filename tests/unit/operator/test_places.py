"""Which actors hold the places: those that keep ending leave first, and a queue, a machine and a quota bound the number."""

from dataclasses import replace

import pytest
from rljob.api import RLJob
from rljob.api.conditions import Reason
from rljob_operator.core.decision import Decision
from rljob_operator.core.member import Member, Phase
from rljob_operator.core.observed import Admission
from rljob_operator.core.rules.failures import QUICK_ENDS_OF_A_CRASH_LOOP

from tests.support.controller import Controller, exited, gone, make_job, member, members, running

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


def scaled(replicas: int, *sets: str) -> dict[str, RLJob]:
    """What is changed in the world where another number of actors is asked for."""
    return {"job": make_job(f"spec.actors.replicas={replicas}", *sets)}


def without(controller: Controller, *names: str) -> tuple[Member, ...]:
    return tuple(m for m in controller.world["members"] if m.name not in names)


@pytest.mark.parametrize(("sets", "replicas"), [((), 4), ((EXTERNAL,), 3)])
def test_looping_actors_no_longer_count_after_a_scale_down(sets: tuple[str, ...], replicas: int) -> None:
    controller = half_of_ten_loop(*sets, keeps_remains=True)
    decision = controller.after(1.0, scaled(replicas, *sets), end="")
    assert len(decision.drain) == 5 - replicas, "healthy ones go only as far as even they are too many"
    assert (set(decision.drain) & set(LOOPING), set(decision.remove)) == (set(), set(LOOPING))
    for _ in range(3):
        controller.after(30.0, {"members": without(controller, *controller.last.drain)}, end="", start=(), drain=())
    controller.expect(ActorsReady=("True", "PodsReady"), ignored=25)  # their ends are in sight and not counted again
    controller.look(1.0, members=without(controller, *LOOPING))
    assert controller.status.controller.members == [], "what is gone and not wanted is forgotten"


def test_an_actor_that_gets_a_place_again_begins_anew() -> None:
    controller = half_of_ten_loop()
    controller.look(1.0, members=without(controller, *controller.look(1.0, **scaled(4)).drain))
    decision = controller.after(1.0, scaled(9), end="")
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
    decision = controller.look(1.0, members=seen, **scaled(5))
    assert (set(decision.drain), decision.start) == ({"actor-0", "actor-1"}, ())


@pytest.mark.parametrize(
    ("coming", "ended", "drain"),
    [((), ("actor-5", "actor-6"), ()), (("actor-0",), ("actor-5",), ("actor-0",))],
    ids=["its start is not waited for", "its place is given in the same look"],
)
def test_actors_that_ended_once_come_back_instead_of_those_that_loop(
    coming: tuple[str, ...], ended: tuple[str, ...], drain: tuple[str, ...]
) -> None:
    controller = half_of_ten_loop()
    fresh = {"phase": Phase.STARTING, "incarnation": "new", "since_seconds": controller.now + 1.0, "exit_code": None}
    seen = tuple(replace(m, **fresh) if m.name in coming else m for m in controller.world["members"])
    for name in ended:
        seen = exited(name, seen, since_seconds=controller.now + 1.0)
    controller.after(1.0, {"members": seen} | scaled(5), start=ended, drain=drain)


def test_too_many_of_those_that_are_left_still_fail_the_job() -> None:
    controller = half_of_ten_loop()
    controller.after(1.0, scaled(9), end="")  # four of nine
    controller.after(1.0, {"members": without(controller, "actor-5", "actor-6")}, end="")  # two places are empty
    life = {"since_seconds": controller.now, "ready_seconds": None}
    for again in range(QUICK_ENDS_OF_A_CRASH_LOOP):
        controller.expect(end="")
        ended = exited("actor-7", controller.world["members"], incarnation=f"again-{again}", **life)
        controller.look(1.0, members=ended)
    controller.expect(end="ActorsCrashLooping")
    assert controller.last.outcome.message.startswith("5 of 9 actors keep ending before they work; ")


def test_a_lost_node_leaves_one_looping_actor_in_sight_and_the_job_goes_on() -> None:
    controller = running("spec.actors.replicas=10", members=members(10))
    seen = members(10)
    for life in range(QUICK_ENDS_OF_A_CRASH_LOOP):
        ended = {"incarnation": f"life-{life}", "since_seconds": controller.now + 40.0, "ready_seconds": None}
        seen = exited("actor-0", members(10), **ended)
        controller.look(40.0, members=seen)
    left = tuple(m for m in seen if m.role != "actor" or m.name == "actor-0")
    assert len(controller.after(1.0, {"members": left}, end="").start) == 9


# -------------------------------------------------------------------------------------------------- who is said to be missing


def stuck(count: int, since: float) -> tuple[Member, ...]:
    waiting = {"waiting": Reason.UNSCHEDULABLE, "waiting_message": "0/3 nodes are available", "since_seconds": since}
    names = (f"actor-{k}" for k in range(1, count + 1))
    return (*members(1), *(member(name, Phase.STARTING, **waiting) for name in names))


def test_actors_that_find_no_place_are_missed() -> None:
    controller = running("spec.actors.replicas=16", members=members(16))
    controller.after(30.0, {"members": stuck(15, controller.now)}, state="Running")  # a new node may be on its way
    controller.after(31.0, Ready=("True", "Degraded"), ActorsReady=("False", "Unschedulable"))
    ready, actors = (controller.said(type)[2] for type in ("Ready", "ActorsReady"))
    assert "15 of 16 actors are not ready (Unschedulable, actor-1, actor-2, actor-3 and 12 more)" in ready
    assert actors.startswith("1 of 16 ready, 1 needed; not ready: actor-1 (0/3 nodes are available), ")


def test_actors_that_start_for_longer_than_a_whole_job_may_are_missed() -> None:
    controller = running("spec.startupDeadlineSeconds=100", "spec.progressDeadlineSeconds=100000")
    seen = tuple(
        replace(m, phase=Phase.STARTING, since_seconds=controller.now) if m.name == "actor-1" else m for m in members()
    )
    controller.after(90.0, {"members": seen}, ActorsReady=("True", "PodsReady"))
    controller.after(11.0, ActorsReady=("False", "PodsPending"))


def test_actors_that_come_back_are_not_missed() -> None:
    running().after(1.0, {"members": exited("actor-0", members())}, state="Running")


TWO = Admission(True, Reason.QUOTA_RESERVED, max_actors=2)
BOUNDS = "spec.autoscaling={mode: %s, minReplicas: 4, maxReplicas: 8}"
FOUR = "spec.actors.replicas=4"


def actors_of(decision: Decision) -> list[str]:
    """The actors that start."""
    return [name for name in decision.start if name.startswith("actor")]


@pytest.mark.parametrize("mode", ["Internal", "External"])
def test_not_even_min_replicas_exceeds_a_quota(mode: str) -> None:
    controller = Controller(make_job(FOUR, BOUNDS % mode), members=members(0), admission=TWO)
    assert actors_of(controller.look()) == ["actor-0", "actor-1"]
    controller.expect(ScalingLimited=("True", "QuotaLimited"), desired_replicas=4)  # what was asked for is shown
    controller.look(1.0, members=members(2))
    assert controller.status.controller.started is not None, "the job is up with what it may have"
    controller.after(1.0, {"admission": Admission(True, Reason.QUOTA_RESERVED, max_actors=None)}, desired_replicas=4)


def test_a_fixed_number_is_bounded_by_the_quota_too() -> None:
    controller = Controller(make_job("spec.actors.replicas=120"), members=members(1), admission=TWO)
    assert actors_of(controller.look()) == ["actor-1"]
    said = "autoscaling.mode is Disabled: 2 actors of 120 asked for, the queue admits no more"
    controller.expect(ScalingLimited=("True", "QuotaLimited"), desired_replicas=120, last_decision=said)
    controller.after(1.0, {"max_actors": 1}, desired_replicas=1, ScalingLimited=("True", "TooManyReplicas"))
    assert "1 actors of 120 asked for" in controller.status.autoscaling.last_decision


def test_a_quota_that_shrinks_takes_actors_away() -> None:
    assert len(running(FOUR, members=members(4)).look(1.0, admission=TWO).drain) == 2


@pytest.mark.parametrize(("bound", "number"), [("max_actors", 2), ("cores", 4)])
def test_max_actors_of_the_machine_bounds_min_replicas_and_cores_do_not(bound: str, number: int) -> None:
    controller = Controller(make_job(FOUR, BOUNDS % "Internal"), members=members(0), **{bound: 2})
    assert len(actors_of(controller.look())) == number


def refused(name: str, reason: Reason = Reason.QUOTA_EXCEEDED, words: str = "exceeded quota") -> Member:
    fields = {"waiting": reason, "waiting_message": words, "placed": False, "incarnation": "", "since_seconds": 1.7e9}
    return member(name, Phase.ABSENT, **fields)


@pytest.mark.parametrize(
    ("reason", "state", "type"),
    [
        (Reason.QUOTA_EXCEEDED, "WaitingForQuota", "Admitted"),
        (Reason.POD_TEMPLATE_REJECTED, "Accepting", "Accepted"),
        (Reason.NAME_CONFLICT, "Accepting", "Accepted"),
    ],
)
def test_a_core_that_does_not_fit_waits_and_is_tried_again(reason: Reason, state: str, type: str) -> None:
    controller = Controller(make_job(), members=(*members(0)[:1], refused("learner", reason)))
    for _ in range(20):
        assert "learner" in controller.after(300.0, drain=(), end="", state=state).start
    assert controller.reason(type) == ("False", reason)
    assert controller.said("Ready")[2] == "learner has waited since 2023-11-14T22:13:20Z: exceeded quota"
    controller.look(1.0, members=members())
    assert controller.reason(type)[0] == "True"


def test_an_actor_that_is_refused_costs_the_others_nothing() -> None:
    controller = running(FOUR, BOUNDS.replace("minReplicas: 4", "minReplicas: 1") % "Disabled", members=members(4))
    for seconds in (1.0, 61.0, 600.0):
        seen = (*gone("actor-3", seen=members(4)), refused("actor-3"))
        controller.after(seconds, {"members": seen}, start=("actor-3",), drain=(), end="")
    limited, waits = ("True", "QuotaLimited"), ("False", "QuotaExceeded")
    controller.expect(desired_replicas=4, ScalingLimited=limited, ActorsReady=waits)
    dead = member("actor-2", Phase.EXITED, exit_code=1)
    decision = controller.look(1.0, members=(*gone("actor-2", "actor-3", seen=members(4)), dead, refused("actor-3")))
    assert set(decision.start) == {"actor-2", "actor-3"}, "who has ended comes back all the same"


def test_an_evaluator_that_does_not_come_up_is_told(controller: Controller) -> None:
    waits = member("evaluator", Phase.STARTING, waiting=Reason.IMAGE_PULL_FAILED, waiting_message="no such image")
    controller.after(1.0, {"members": (*gone("evaluator"), waits)}, Ready=("True", "Degraded"))
    assert "the evaluator is not ready (no such image)" in controller.said("Ready")[2]


@pytest.mark.parametrize("mode", ["Disabled", "Internal", "External"])
def test_a_job_that_waits_in_its_queue_shows_what_was_asked_for(mode: str) -> None:
    waits = Admission(False, Reason.WAITING_FOR_QUOTA, "insufficient quota")
    controller = Controller(make_job(FOUR, f"spec.autoscaling.mode={mode}"), members=(), admission=waits)
    controller.after(0.0, start=(), desired_replicas=4)

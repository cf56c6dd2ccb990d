"""Members that do not answer, and inference servers that are no longer wanted, as the core decides about them."""

from dataclasses import replace
from typing import Any

import pytest
from rljob_operator.core.desired import Session
from rljob_operator.core.member import Member, Phase
from rljob_operator.core.rules import hangs

from tests.support.controller import START, Controller, exited, make_job, member, members, running, verified

CENTRAL = "spec.actors.inference=Central"
SERVED = (*members(), member("inference-0"), member("inference-1"))


def silent(name: str, seconds: float, seen: tuple[Member, ...] | None = None, **fields: Any) -> tuple[Member, ...]:
    given = {"silent_seconds": seconds, "silent_because": "does not answer"} | fields
    return tuple(replace(m, **given) if m.name == name else m for m in (seen or members()))


@pytest.mark.parametrize("name", ["replay-0", "learner", "actor-1", "evaluator"])
def test_a_silent_member_is_named_then_replaced_and_its_end_is_a_failure_of_its_own(
    name: str, controller: Controller
) -> None:
    controller.expect(state="Running")
    controller.after(1.0, {"members": silent(name, hangs.NAMED_SECONDS - 0.1)}, state="Running", replace=())
    controller.look(1.0, members=silent(name, hangs.NAMED_SECONDS))
    assert controller.said("Ready") == ("True", "Degraded", f"{name} does not answer")
    before = controller.status.conditions
    again = controller.look(0.5, members=silent(name, hangs.NAMED_SECONDS + 0.5))
    assert again.status.conditions == before, "the status does not change with every second of silence"
    controller.after(1.0, {"members": members()}, state="Running")  # it answers again
    controller.after(1.0, {"members": silent(name, hangs.REPLACED_SECONDS)}, replace=(name,), drain=(), start=())
    ended = exited(name, members(), since_seconds=START, exit_code=-9, hung=True, last_words="it did not answer")
    controller.after(1.0, {"members": ended}, start=(name,), counted=int(name != "actor-1"))
    failure = controller.status.failures[-1]
    assert (failure.pod_name, failure.reason, failure.exit_code, failure.action) == (name, "Hung", 137, "RestartRole")


@pytest.mark.parametrize("name", ["replay-0", "learner", "actor-1"])
def test_a_member_that_never_announces_itself_is_named_then_replaced_after_a_longer_time(
    name: str, controller: Controller
) -> None:
    starting = members(**{name.replace("-", "_"): Phase.STARTING})

    def look(seconds: float) -> tuple[bool, tuple[str, ...]]:
        """Whether it is named, and who is replaced."""
        controller.look(1.0, members=silent(name, seconds, starting, silent_because="is still starting"))
        return f"{name} is still starting" in controller.said("Ready")[2], controller.last.replace

    assert hangs.START_NAMED_SECONDS > 10 * hangs.NAMED_SECONDS
    assert (look(hangs.START_NAMED_SECONDS - 0.1), look(hangs.START_NAMED_SECONDS)) == ((False, ()), (True, ()))
    assert look(hangs.START_REPLACED_SECONDS)[1] == (name,)


@pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.EXITED])
def test_only_who_serves_can_be_silent(phase: Phase, controller: Controller) -> None:
    controller.after(1.0, {"members": silent("actor-1", 1000.0, members(actor_1=phase))}, replace=())
    assert "does not answer" not in controller.said("Ready")[2]


def test_a_learner_that_hangs_while_it_is_to_be_saved_does_not_hold_up_the_suspension_for_ever(
    controller: Controller,
) -> None:
    controller.job = make_job("spec.suspend=true")
    left = silent("learner", hangs.REPLACED_SECONDS, members(actors=0, evaluator=Phase.EXITED))
    assert controller.look(1.0, members=left).replace == ("learner",)


def test_whoever_leaves_at_the_end_has_a_time_of_its_own() -> None:
    running().after(1.0, {"members": silent("learner", 1000.0), "session": Session(1.0, interrupted=True)}, replace=())


def served(*sets: str) -> Controller:
    return running(CENTRAL, "spec.inference.replicas=2", *sets, members=SERVED)


def started_anew(controller: Controller) -> set[str]:
    """What is started once everything has left: a server that a job no longer wants goes with all others, as everybody's
    addresses change."""
    core = (member("replay-0"), member("learner"), member("inference-0"), member("inference-1"))
    assert set(controller.look(1.0).drain) == {"actor-0", "actor-1", "evaluator"}, "they leave first"
    assert controller.look(1.0, members=core).drain == (), "the learner is asked for a checkpoint"
    saved = verified(controller.now, 1000)
    assert set(controller.look(1.0, checkpoint=saved).drain) == {"learner", "inference-0", "inference-1"}
    assert controller.look(1.0, members=core[:1]).drain == ("replay-0",)
    here: tuple[Member, ...] = ()
    for _ in range(8):
        decision = controller.look(5.0, members=here)
        here += tuple(member(name) for name in decision.start)
    return {each.name for each in here}


def test_one_server_fewer() -> None:
    controller = served()
    controller.job = make_job(CENTRAL, "spec.inference.replicas=1")
    assert started_anew(controller) == {each.name for each in members()} | {"inference-0"}
    controller.expect(InferenceReady=("True", "PodsReady"))
    assert (controller.status.inference.ready, controller.status.inference.desired) == (1, 1)


def test_a_server_that_nobody_wants_leaves_and_stands_in_for_none() -> None:
    """One of a life before that was found running; a job itself gets fewer servers only by starting anew."""
    controller = running(CENTRAL, "spec.inference.replicas=1", members=(*members(), member("inference-0")))
    assert controller.look(1.0, members=exited("inference-0", SERVED)).drain == ("inference-1",)
    controller.expect(InferenceReady=("False", "Restarting"), state="Degraded")


@pytest.mark.parametrize("sets", [(), (CENTRAL,)], ids=["local", "in the learner"])
def test_no_servers_any_more(sets: tuple[str, ...], soon_forgiven: float) -> None:
    controller = served()
    controller.look(1.0, members=exited("inference-1", SERVED))
    assert controller.reason("InferenceReady")[0] == "False"
    controller.look(40.0, members=SERVED)
    controller.job = make_job(*sets)
    assert started_anew(controller) == {each.name for each in members()}
    controller.expect(InferenceReady=("", ""))
    controller.after(soon_forgiven, counted=0)  # its health is not waited for


def test_no_servers_after_a_suspension() -> None:
    controller = served("spec.suspend=true")
    controller.after(1.0, {"members": ()}, InferenceReady=("False", "PodsStopped"))
    controller.after(1.0, {"job": make_job()}, InferenceReady=("", ""))

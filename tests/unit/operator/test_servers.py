"""Inference servers that the spec no longer wants leave, and nothing is said of them any more."""

from __future__ import annotations

import pytest
from rljob_operator.core.member import Member

from tests.support.controller import Controller, exited, make_job, member, members, running

CENTRAL = "spec.actors.inference=Central"
UNSAVED = "spec.checkpoint.onSuspend=Skip"
SERVED = (*members(), member("inference-0"), member("inference-1"))


def served(*sets: str) -> Controller:
    return running(CENTRAL, "spec.inference.replicas=2", UNSAVED, *sets, members=SERVED)


def started_anew(controller: Controller) -> set[str]:
    """What is started once everything has left: a server that a job no longer wants goes with all others, as everybody's
    addresses change."""
    core = (member("replay-0"), member("learner"), member("inference-0"), member("inference-1"))
    assert set(controller.look(1.0).drain) == {"actor-0", "actor-1", "evaluator"}, "they leave first"
    assert set(controller.look(1.0, members=core).drain) == {"learner", "inference-0", "inference-1"}
    assert controller.look(1.0, members=core[:1]).drain == ("replay-0",)
    here: tuple[Member, ...] = ()
    for _ in range(8):
        decision = controller.look(5.0, members=here)
        here += tuple(member(name) for name in decision.start)
    return {each.name for each in here}


def test_one_server_fewer() -> None:
    controller = served()
    controller.job = make_job(CENTRAL, "spec.inference.replicas=1", UNSAVED)
    assert started_anew(controller) == {each.name for each in members()} | {"inference-0"}
    controller.expect(InferenceReady=("True", "PodsReady"))
    assert (controller.status.inference.ready, controller.status.inference.desired) == (1, 1)


def test_a_server_that_nobody_wants_leaves_and_stands_in_for_none() -> None:
    """One of a life before that was found running; a job itself gets fewer servers only by starting anew."""
    controller = running(CENTRAL, "spec.inference.replicas=1", members=(*members(), member("inference-0")))
    assert controller.look(1.0, members=exited("inference-0", SERVED)).drain == ("inference-1",)
    controller.expect(InferenceReady=("False", "Restarting"), state="Degraded")


@pytest.mark.parametrize("sets", [(), (CENTRAL,)], ids=["local", "in the learner"])
def test_no_servers_any_more(sets: tuple[str, ...]) -> None:
    controller = served("spec.failurePolicy.resetAfterSeconds=100")
    controller.look(1.0, members=exited("inference-1", SERVED))
    assert controller.reason("InferenceReady")[0] == "False"
    controller.look(40.0, members=SERVED)
    patient = ("spec.failurePolicy.resetAfterSeconds=100", "spec.progressDeadlineSeconds=100000")
    controller.job = make_job(*sets, UNSAVED, *patient)
    assert started_anew(controller) == {each.name for each in members()}
    controller.expect(InferenceReady=("", ""))
    controller.after(150.0, counted=0)  # its health is not waited for


def test_no_servers_after_a_suspension() -> None:
    controller = served("spec.suspend=true")
    controller.after(1.0, {"members": ()}, InferenceReady=("False", "PodsStopped"))
    controller.after(1.0, {"job": make_job()}, InferenceReady=("", ""))

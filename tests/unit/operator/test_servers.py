"""Inference servers that the spec no longer wants leave, and nothing is said of them any more."""

from __future__ import annotations

import pytest

from .operator_builders import Controller, exited, make_job, member, members, running

CENTRAL = "spec.actors.inference=Central"
SERVED = (*members(), member("inference-0"), member("inference-1"))


def served(*sets: str) -> Controller:
    return running(CENTRAL, "spec.inference.replicas=2", *sets, members=SERVED)


def test_one_server_fewer() -> None:
    controller = served()
    controller.job = make_job(CENTRAL, "spec.inference.replicas=1")
    assert controller.look(1.0).drain == ("inference-1",)
    assert controller.reason("InferenceReady") == ("True", "PodsReady")
    assert (controller.status.inference.ready, controller.status.inference.desired) == (1, 1)


def test_a_server_that_leaves_does_not_stand_in_for_one_that_stays() -> None:
    controller = served()
    controller.job = make_job(CENTRAL, "spec.inference.replicas=1")
    controller.look(1.0, members=exited("inference-0", SERVED))
    assert controller.reason("InferenceReady") == ("False", "Restarting")
    assert controller.status.state == "Degraded"


@pytest.mark.parametrize("sets", [(), (CENTRAL,)], ids=["local", "in the learner"])
def test_no_servers_any_more(sets: tuple[str, ...]) -> None:
    controller = served("spec.failurePolicy.resetAfterSeconds=100")
    controller.look(1.0, members=exited("inference-1", SERVED))
    assert controller.reason("InferenceReady")[0] == "False"
    controller.job = make_job(*sets, "spec.failurePolicy.resetAfterSeconds=100", "spec.progressDeadlineSeconds=100000")
    decision = controller.look(1.0, keeps_remains=True)
    assert decision.drain == ("inference-0",)
    assert decision.remove == ("inference-1",), "what is left of one that ended goes too"
    assert controller.status.condition("InferenceReady") is None
    assert controller.status.restarts.counted == 1
    controller.look(150.0, members=members())
    assert controller.status.restarts.counted == 0, "nobody waits for its health"


def test_no_servers_after_a_suspension() -> None:
    controller = served("spec.suspend=true")
    controller.look(1.0, members=())
    assert controller.reason("InferenceReady") == ("False", "PodsStopped")
    controller.job = make_job()
    controller.look(1.0)
    assert controller.status.condition("InferenceReady") is None

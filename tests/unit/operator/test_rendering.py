"""What pods are made with is fixed when a job comes up from nothing, and by nothing else."""

import pytest
from rljob.api.conditions import Reason
from rljob.api.controller_memory import RenderingMemory
from rljob_operator.core.observed import Admission, CheckpointFacts

from tests.support.controller import Controller, make_job, members, running, verified

OLD, NEW = (RenderingMemory(version=number, image=f"rl:{number}") for number in (1, 2))
CORE = members(0)[:2]


@pytest.fixture
def controller() -> Controller:
    """A job that trains, with an operator that would make pods in another way."""
    controller = running(rendering=OLD, written="a-1")
    controller.world["rendering"] = NEW
    return controller


def test_it_stands_from_the_first_start_and_no_other_operator_changes_it(controller: Controller) -> None:
    controller.expect(rendering=OLD)
    controller.look(100.0)
    controller.after(1.0, {"job": make_job("spec.actors.replicas=3")}, start=("actor-2",), rendering=OLD)
    controller.looks({"members": CORE}, {"members": ()})
    controller.expect(rendering=OLD)  # that all members are gone is no suspension


def test_a_suspension_changes_it_once_nothing_runs_and_not_when_it_is_called_off(controller: Controller) -> None:
    controller.look(1.0, job=make_job("spec.suspend=true"))
    controller.after(1.0, {"job": make_job()}, rendering=OLD)
    controller.job = make_job("spec.suspend=true")
    controller.looks({}, {"members": CORE}, {"checkpoint": verified(controller.now + 3, 2000)}, {"members": ()})
    controller.expect(Suspended=("True", "UserRequested"), rendering=OLD)
    controller.after(1.0, {"job": make_job()}, start=("replay-0", "learner", "actor-0"), rendering=NEW)


def test_a_queue_that_takes_the_quota_back_changes_it_too(controller: Controller) -> None:
    controller.look(1.0, admission=Admission(False, Reason.EVICTED), checkpoint=CheckpointFacts())
    controller.look(120.0, members=())
    controller.after(1.0, {"admission": None}, rendering=NEW)


def test_a_change_that_restarts_everything_changes_it(controller: Controller) -> None:
    assert controller.after(1.0, {"written": "a-2"}, rendering=OLD).drain, "the user has written something else"
    controller.after(1.0, {"members": ()}, rendering=NEW)

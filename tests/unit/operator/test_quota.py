"""What a queue has admitted bounds the number of actors, whoever asks for it."""

from __future__ import annotations

import pytest
from rljob.api.conditions import Reason
from rljob_operator.core.member import Phase
from rljob_operator.core.observed import Admission

from tests.support.controller import Controller, make_job, member, members, running

TWO = Admission(True, Reason.QUOTA_RESERVED, max_actors=2)
BOUNDS = "spec.autoscaling={mode: %s, minReplicas: 4, maxReplicas: 8}"
FOUR = "spec.actors.replicas=4"


@pytest.mark.parametrize("mode", ["Internal", "External"])
def test_not_even_min_replicas_exceeds_a_quota(mode: str) -> None:
    controller = Controller(make_job(FOUR, BOUNDS % mode), members=members(0), admission=TWO)
    decision = controller.look()
    assert [name for name in decision.start if name.startswith("actor")] == ["actor-0", "actor-1"]
    assert controller.reason("ScalingLimited") == ("True", "QuotaLimited")
    assert controller.status.autoscaling.desired_replicas == 2
    controller.look(1.0, members=members(2))
    assert controller.status.controller.started is not None, "the job is up with what it may have"
    controller.look(1.0, admission=Admission(True, Reason.QUOTA_RESERVED, max_actors=None))
    assert controller.status.autoscaling.desired_replicas == 4


def test_a_fixed_number_is_bounded_by_the_quota_too() -> None:
    controller = Controller(make_job("spec.actors.replicas=120"), members=members(0), admission=TWO)
    decision = controller.look()
    assert [name for name in decision.start if name.startswith("actor")] == ["actor-0", "actor-1"]
    assert controller.reason("ScalingLimited") == ("True", "QuotaLimited")
    said = controller.status.autoscaling.last_decision
    assert said == "autoscaling.mode is Disabled: 2 actors of 120 asked for, the queue admits no more"
    controller.look(1.0, max_actors=1)
    assert controller.status.autoscaling.desired_replicas == 1
    assert controller.reason("ScalingLimited") == ("True", "TooManyReplicas"), "the nearer bound is named"


def test_a_quota_that_shrinks_takes_actors_away() -> None:
    controller = running(FOUR, members=members(4))
    assert len(controller.look(1.0, admission=TWO).drain) == 2


def test_max_actors_of_the_machine_bounds_min_replicas_and_cores_do_not() -> None:
    job = make_job(FOUR, BOUNDS % "Internal")
    assert len([n for n in Controller(job, members=members(0), max_actors=2).look().start if "actor" in n]) == 2
    assert len([n for n in Controller(job, members=members(0), cores=2).look().start if "actor" in n]) == 4


def test_a_quota_counts_actors_that_start() -> None:
    seen = (*members(1), member("actor-1", Phase.STARTING))
    controller = Controller(make_job(FOUR), members=seen, admission=TWO)
    assert controller.look().start == ()

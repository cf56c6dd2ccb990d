"""What a queue has admitted bounds the number of actors, whatever asks for it; what a ResourceQuota refuses is told and waits."""

from __future__ import annotations

import pytest
from rljob.api.conditions import Reason
from rljob_operator.core.member import Member, Phase
from rljob_operator.core.observed import Admission

from tests.support.controller import Controller, gone, make_job, member, members, running

TWO = Admission(True, Reason.QUOTA_RESERVED, max_actors=2)
BOUNDS = "spec.autoscaling={mode: %s, minReplicas: 4, maxReplicas: 8}"
FOUR = "spec.actors.replicas=4"


@pytest.mark.parametrize("mode", ["Internal", "External"])
def test_not_even_min_replicas_exceeds_a_quota(mode: str) -> None:
    controller = Controller(make_job(FOUR, BOUNDS % mode), members=members(0), admission=TWO)
    assert [name for name in controller.look().start if name.startswith("actor")] == ["actor-0", "actor-1"]
    assert controller.reason("ScalingLimited") == ("True", "QuotaLimited")
    assert controller.status.autoscaling.desired_replicas == 4, "what was asked for is shown"
    controller.look(1.0, members=members(2))
    assert controller.status.controller.started is not None, "the job is up with what it may have"
    controller.look(1.0, admission=Admission(True, Reason.QUOTA_RESERVED, max_actors=None))
    assert controller.status.autoscaling.desired_replicas == 4


def test_a_fixed_number_is_bounded_by_the_quota_too() -> None:
    controller = Controller(make_job("spec.actors.replicas=120"), members=members(1), admission=TWO)
    assert [name for name in controller.look().start if name.startswith("actor")] == ["actor-1"]
    assert controller.reason("ScalingLimited") == ("True", "QuotaLimited")
    assert controller.status.autoscaling.desired_replicas == 120, "what was asked for is shown"
    said = controller.status.autoscaling.last_decision
    assert said == "autoscaling.mode is Disabled: 2 actors of 120 asked for, the queue admits no more"
    controller.look(1.0, max_actors=1)
    assert controller.status.autoscaling.desired_replicas == 1
    assert controller.reason("ScalingLimited") == ("True", "TooManyReplicas"), "the nearer bound is named"


def test_a_quota_that_shrinks_takes_actors_away() -> None:
    assert len(running(FOUR, members=members(4)).look(1.0, admission=TWO).drain) == 2


def test_max_actors_of_the_machine_bounds_min_replicas_and_cores_do_not() -> None:
    job = make_job(FOUR, BOUNDS % "Internal")
    assert len([n for n in Controller(job, members=members(0), max_actors=2).look().start if "actor" in n]) == 2
    assert len([n for n in Controller(job, members=members(0), cores=2).look().start if "actor" in n]) == 4


def test_a_quota_counts_actors_that_start() -> None:
    seen = (*members(1), member("actor-1", Phase.STARTING))
    assert Controller(make_job(FOUR), members=seen, admission=TWO).look().start == ()


def refused(name: str, reason: Reason = Reason.QUOTA_EXCEEDED, words: str = "exceeded quota") -> Member:
    fields = {"waiting": reason, "waiting_message": words, "placed": False, "incarnation": "", "since_seconds": 1.7e9}
    return member(name, Phase.ABSENT, **fields)


def test_a_core_that_does_not_fit_waits_and_is_tried_again() -> None:
    replay = members(0)[:1]
    for reason, state, told in (
        (Reason.QUOTA_EXCEEDED, "WaitingForQuota", ("Admitted", "QuotaExceeded")),
        (Reason.POD_TEMPLATE_REJECTED, "Accepting", ("Accepted", "PodTemplateRejected")),
        (Reason.NAME_CONFLICT, "Accepting", ("Accepted", "NameConflict")),
    ):
        controller = Controller(make_job(), members=(*replay, refused("learner", reason)))
        for _ in range(20):
            decision = controller.look(300.0)
            assert "learner" in decision.start
            assert (decision.drain, decision.outcome, decision.state) == ((), None, state)
        assert controller.reason(told[0]) == ("False", told[1])
        ready = controller.status.condition("Ready")
        assert ready.message == "learner waits since 2023-11-14T22:13:20Z: exceeded quota"
        controller.look(1.0, members=members())
        assert controller.reason(told[0])[0] == "True"


def test_an_actor_that_is_refused_costs_the_others_nothing() -> None:
    controller = running(FOUR, BOUNDS.replace("minReplicas: 4", "minReplicas: 1") % "Disabled", members=members(4))
    for seconds in (1.0, 61.0, 600.0):
        decision = controller.look(seconds, members=(*gone("actor-3", seen=members(4)), refused("actor-3")))
        assert (decision.start, decision.drain, decision.outcome) == (("actor-3",), (), None)
    assert controller.status.autoscaling.desired_replicas == 4
    assert controller.reason("ScalingLimited") == ("True", "QuotaLimited")
    assert controller.reason("ActorsReady") == ("False", "QuotaExceeded")
    dead = member("actor-2", Phase.EXITED, exit_code=1)
    decision = controller.look(1.0, members=(*gone("actor-2", "actor-3", seen=members(4)), dead, refused("actor-3")))
    assert set(decision.start) == {"actor-2", "actor-3"}, "who has ended comes back all the same"


def test_an_evaluator_that_does_not_come_up_is_told() -> None:
    waits = member("evaluator", Phase.STARTING, waiting=Reason.IMAGE_PULL_FAILED, waiting_message="no such image")
    controller = running(members=members())
    controller.look(1.0, members=(*gone("evaluator", seen=members()), waits))
    ready = controller.status.condition("Ready")
    assert (ready.status, ready.reason) == ("True", "Degraded")
    assert "the evaluator is not ready (no such image)" in ready.message


@pytest.mark.parametrize("mode", ["Disabled", "Internal", "External"])
def test_a_job_that_waits_in_its_queue_shows_what_was_asked_for(mode: str) -> None:
    waits = Admission(False, Reason.WAITING_FOR_QUOTA, "insufficient quota")
    controller = Controller(make_job(FOUR, f"spec.autoscaling.mode={mode}"), members=(), admission=waits)
    assert (controller.look().start, controller.status.autoscaling.desired_replicas) == ((), 4)

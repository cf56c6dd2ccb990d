"""Which learner of a job counts: each is given a later epoch than any before it, wherever those kept their checkpoints."""

from __future__ import annotations

from dataclasses import replace

from rljob.api.conditions import Reason
from rljob.api.exit_codes import EXIT_SUPERSEDED
from rljob_operator.core.member import Phase
from rljob_operator.kube.job.members import members as members_of

from tests.support.controller import START, Controller, exited, gone, make_job, member, members, sample
from tests.unit.operator.kube.member_pods import ended, pod, running
from tests.unit.operator.kube.rendered import environment, owned, pod_of


def test_a_learner_is_given_a_later_epoch_than_any_before_it_has_had() -> None:
    controller = Controller(make_job(), members=members(learner=Phase.ABSENT))
    assert "learner" in controller.look().start
    assert controller.status.controller.learner_epoch == 1
    controller.look(1.0, members=members(), learner=sample(updates=5, epoch=1))
    controller.look(1.0, learner=sample(updates=9, epoch=4))  # it went back to a checkpoint, three times
    assert controller.status.controller.learner_epoch == 1, "nothing is written for that"
    last = controller.look(60.0, members=exited("learner", members()))
    assert "learner" in last.start
    assert last.status.controller.learner_epoch == 5
    assert environment(pod_of(replace(owned(), learner_epoch=5), "learner"))["RLJOB_EPOCH"] == "5"


def test_a_learner_whose_pod_is_refused_keeps_the_epoch_that_it_was_given() -> None:
    """Found by the search: a status that changed at every look would be written at each, for as long as a quota is full."""
    controller = Controller(make_job(), members=members(learner=Phase.ABSENT))
    controller.look()
    refused = member(
        "learner", Phase.ABSENT, waiting=Reason.QUOTA_EXCEEDED, waiting_message="exceeded quota", placed=False
    )
    controller.look(1.0, members=(*gone("learner"), refused))
    before = controller.status
    assert "learner" in controller.look(0.0).start
    assert controller.status == before


def test_the_end_of_a_superseded_learner_is_no_failure_of_its_successor() -> None:
    over = ended(EXIT_SUPERSEDED, message="a learner of epoch 2 has begun after this one")
    pods = [
        pod(uid="old", phase="Failed", containerStatuses=[over]),
        pod(uid="new", created=30.0, phase="Running", containerStatuses=[running()]),
    ]
    (learner,) = members_of(pods, START)
    assert learner.incarnation == "new"
    controller = Controller(make_job())
    controller.look(members=(*gone("learner"), learner))
    assert (controller.status.restarts.counted, controller.status.failures) == (0, [])

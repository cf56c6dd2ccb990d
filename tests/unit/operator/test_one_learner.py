"""Which learner counts: epochs, and the end of one that another has followed."""

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
    assert "learner" in controller.after(0.0, learner_epoch=1).start
    controller.look(1.0, members=members(), learner=sample(updates=5, epoch=1))
    # It went back to a checkpoint, three times; nothing is written for that.
    controller.after(1.0, {"learner": sample(updates=9, epoch=4)}, learner_epoch=1)
    assert "learner" in controller.after(60.0, {"members": exited("learner", members())}, learner_epoch=5).start
    assert environment(pod_of(replace(owned(), learner_epoch=5), "learner"))["RLJOB_EPOCH"] == "5"


def test_a_learner_whose_pod_is_refused_keeps_the_epoch_that_it_was_given() -> None:
    """Found by the search: a status that changed at every look would be written at each, for as long as a quota is full."""
    controller = Controller(make_job(), members=members(learner=Phase.ABSENT))
    controller.look()
    why = {"waiting": Reason.QUOTA_EXCEEDED, "waiting_message": "exceeded quota", "placed": False}
    controller.look(1.0, members=(*gone("learner"), member("learner", Phase.ABSENT, **why)))
    assert ("learner" in controller.look(0.0).start, controller.status) == (True, controller.status)


def test_the_end_of_a_superseded_learner_is_no_failure_of_its_successor() -> None:
    over = ended(EXIT_SUPERSEDED, message="a learner of epoch 2 has begun after this one")
    pods = [
        pod(uid="old", phase="Failed", containerStatuses=[over]),
        pod(uid="new", created=30.0, phase="Running", containerStatuses=[running()]),
    ]
    (learner,) = members_of(pods, START)
    assert learner.incarnation == "new"
    Controller(make_job()).after(0.0, {"members": (*gone("learner"), learner)}, counted=0, failures=[])

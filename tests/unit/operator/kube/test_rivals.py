"""Two jobs, each of which holds room that the rest of the other needs."""

from typing import Any

import pytest
from rljob.api.conditions import Reason
from rljob_operator.core.observed import Observation
from rljob_operator.kube.job.members import Pod, members
from rljob_operator.kube.job.waits import with_rivals

from .member_pods import CREATED, condition, pod, running

NO_ROOM = "0/3 nodes are available: 3 Insufficient cpu"
HAS = {"phase": "Running", "containerStatuses": [running()]}
STUCK = {"node": "", "conditions": [condition("PodScheduled", "False", reason="Unschedulable", message=NO_ROOM)]}
HALF = {"replay-0": HAS, "learner": STUCK}


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        (HALF, HALF, True),
        (HALF, {"replay-0": HAS, "learner": HAS}, False),
        (HALF, {"replay-0": STUCK, "learner": STUCK}, False),
        ({"replay-0": HAS, "learner": HAS, "actor-0": STUCK}, HALF, False),
        ({"learner": STUCK}, HALF, False),
    ],
)
def test_jobs_that_hold_a_part_and_wait_name_each_other(
    ours: dict[str, dict[str, Any]], theirs: dict[str, dict[str, Any]], told: bool
) -> None:
    def pods_of(job: dict[str, dict[str, Any]]) -> list[Pod]:
        return [pod(name, uid=name, **state) for name, state in job.items()]

    observed = Observation(members(pods_of(ours), CREATED + 60))
    found = with_rivals(observed, [("other", pods_of(theirs))], CREATED + 60)
    waits = [member.waiting_message for member in found.members if member.waiting is Reason.UNSCHEDULABLE]
    assert waits
    assert all(("other of this namespace waits" in said) is told for said in waits)
    assert all(said.endswith(NO_ROOM) for said in waits), "the scheduler's words come after it"

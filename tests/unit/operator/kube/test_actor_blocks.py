"""What a job asks a queue for: blocks of actors, and a Workload that was evicted."""

from typing import Any

import pytest
from rljob.api.conditions import ConditionType, Reason
from rljob.api.job import RLJobSpec
from rljob.api.status import AutoscalingStatus, Condition, RLJobStatus
from rljob_operator.kube.job.workload_state import Block, Change, change, wanted_actors, without_quota

from tests.support.controller import make_job

FIXED = make_job("spec.actors.replicas=40").spec
LAW = make_job("spec.actors.replicas=4", "spec.autoscaling={mode: Internal, minReplicas: 2, maxReplicas: 30}").spec
OTHERS = make_job("spec.actors.replicas=25", "spec.autoscaling={mode: External, minReplicas: 2, maxReplicas: 30}").spec


def block(number: int, actors: int = 16, *, admitted: bool = True) -> Block:
    return Block(number, actors, admitted, reserved=admitted)


def scaled(desired: int, recommended: int = 0, limited: str = "None", *, known: bool = True) -> RLJobStatus:
    reason = Reason.VALID_METRIC_FOUND if known else Reason.WARMING_UP
    active = Condition(type=ConditionType.SCALING_ACTIVE, status=str(known), reason=reason, last_transition_time=0.0)  # type: ignore[arg-type]
    found = AutoscalingStatus.model_construct(
        desired_replicas=desired, recommended_replicas=recommended, limited_by=limited
    )
    return RLJobStatus(conditions=[active]).model_copy(update={"autoscaling": found})


EVICTED = Block(1, 16, admitted=False, reserved=True)


@pytest.mark.parametrize(
    ("spec", "blocks", "wanted", "there", "expected"),
    [
        # A fixed number gets all its blocks at once, and takes a free number.
        (FIXED, [], 40, 0, Change(ask_for=((0, 16), (1, 16), (2, 7)))),
        (FIXED, [block(0), block(1, 7, admitted=False)], 40, 0, Change(ask_for=((2, 16),))),
        (FIXED, [block(0), block(2)], 34, 0, Change(ask_for=((1, 1),))),
        # A number that moves gets full blocks, one at a time, and no more than maxReplicas.
        (LAW, [], 25, 0, Change(ask_for=((0, 16),))),
        (LAW, [block(0, admitted=False)], 25, 0, Change()),
        (LAW, [block(0)], 25, 0, Change(ask_for=((1, 12),))),
        (LAW, [block(0), block(1, 12)], 30, 30, Change()),
        # A block goes back as a whole and after its actors, first the one that waits.
        (FIXED, [block(0), block(1)], 18, 33, Change()),
        (FIXED, [block(0), block(1)], 17, 18, Change()),
        (FIXED, [block(0), block(1)], 17, 17, Change(give_back=(1,))),
        (FIXED, [block(0, 3, admitted=False), block(1)], 17, 17, Change(give_back=(0,))),
        (FIXED, [block(0), block(1)], 1, 1, Change(give_back=(1, 0))),
        # One that was evicted and still has quota waits for its actors.
        (FIXED, [block(0), EVICTED], 17, 20, Change()),
    ],
)
def test_which_blocks_are_asked_for_and_given_back(
    spec: RLJobSpec, blocks: list[Block], wanted: int, there: int, expected: Change
) -> None:
    assert change(spec, 1 if spec is FIXED else 2, blocks, wanted, there) == expected


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        (RLJobStatus(), 4),
        (scaled(2, known=False), 4),
        (scaled(9, known=False), 9),
        (scaled(3, 3), 3),
        (scaled(18, 25, "Quota"), 25),
        (scaled(18, 400, "Quota"), 30),
        (scaled(18, 400, "ScaleUpPolicy"), 18),
    ],
)
def test_the_law_is_followed_as_if_there_were_no_quota(status: RLJobStatus, wanted: int) -> None:
    assert wanted_actors(LAW, status) == wanted


def test_a_number_from_outside_is_what_it_is() -> None:
    assert (wanted_actors(OTHERS, scaled(2)), wanted_actors(FIXED, scaled(2))) == (25, 40)


@pytest.mark.parametrize(("asked", "wanted"), [(1, 2), (100, 30)])
@pytest.mark.parametrize("mode", ["Internal", "External"])
def test_a_number_outside_the_bounds_asks_for_no_quota_of_its_own(mode: str, asked: int, wanted: int) -> None:
    bounds = f"spec.autoscaling={{mode: {mode}, minReplicas: 2, maxReplicas: 30}}"
    assert wanted_actors(make_job(f"spec.actors.replicas={asked}", bounds).spec, RLJobStatus()) == wanted


THEN, NOW = "2026-11-24T20:00:00Z", 1795550400.0


def evicted(reason: str) -> dict[str, Any]:
    """A Workload that ran and is evicted; Kueue has not got its quota back."""
    true = {"QuotaReserved": "Admitted", "Admitted": "Admitted", "PodsReady": "Started", "Evicted": reason}
    conditions = [
        {"type": kind, "status": "True", "reason": why, "message": "words", "lastTransitionTime": THEN}
        for kind, why in true.items()
    ]
    return {"metadata": {"name": "pong", "generation": 1}, "status": {"conditions": conditions}}


@pytest.mark.parametrize(
    ("reason", "at_once"),
    [
        ("Preempted", True),
        ("NodeFailures", True),
        ("AdmissionCheck", False),
        ("PodsReadyTimeout", False),
        ("Deactivated", False),
        ("ClusterQueueStopped", False),
        ("LocalQueueStopped", False),
    ],
)
def test_an_evicted_workload_queues_again_at_once_or_when_kueue_says_so(reason: str, at_once: bool) -> None:
    """As Kueue does with the jobs that it knows: a backoff that it has set is not cut short."""
    written = without_quota(evicted(reason), NOW)
    said = {each["type"]: (each["status"], each["reason"]) for each in written["conditions"]}
    expected = {
        "Evicted": ("True", reason),
        "QuotaReserved": ("False", "Pending"),
        "Admitted": ("False", "NoReservation"),
        "Requeued": (str(at_once), reason),
        "PodsReady": ("False", "WaitForStart"),
    }
    assert (said, written["admission"]) == (expected, None)

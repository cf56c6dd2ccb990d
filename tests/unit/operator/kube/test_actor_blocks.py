"""Blocks of actors that a job asks a queue for."""

from __future__ import annotations

import pytest
from rljob.api.conditions import ConditionType, Reason
from rljob.api.status import AutoscalingStatus, Condition, RLJobStatus
from rljob_operator.kube.job.actor_blocks import Block, Change, change, wanted_actors

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


def test_a_fixed_number_gets_all_its_blocks_at_once() -> None:
    assert change(FIXED, 1, [], 40, 0) == Change(ask_for=((0, 16), (1, 16), (2, 7)))
    assert change(FIXED, 1, [block(0), block(1, 7, admitted=False)], 40, 0) == Change(ask_for=((2, 16),))
    assert change(FIXED, 1, [block(0), block(2)], 34, 0) == Change(ask_for=((1, 1),)), "a free number is taken"


def test_a_number_that_moves_gets_full_blocks_one_at_a_time() -> None:
    assert change(LAW, 2, [], 25, 0) == Change(ask_for=((0, 16),))
    assert change(LAW, 2, [block(0, admitted=False)], 25, 0) == Change()
    assert change(LAW, 2, [block(0)], 25, 0) == Change(ask_for=((1, 12),)), "no more than maxReplicas"
    assert change(LAW, 2, [block(0), block(1, 12)], 30, 30) == Change()


def test_a_block_goes_back_as_a_whole_and_after_its_actors() -> None:
    assert change(FIXED, 1, [block(0), block(1)], 18, 33) == Change()
    assert change(FIXED, 1, [block(0), block(1)], 17, 18) == Change(), "one of its actors is on its way out"
    assert change(FIXED, 1, [block(0), block(1)], 17, 17) == Change(give_back=(1,))
    assert change(FIXED, 1, [block(0, 3, admitted=False), block(1)], 17, 17) == Change(give_back=(0,)), (
        "the one that waits"
    )
    assert change(FIXED, 1, [block(0), block(1)], 1, 1) == Change(give_back=(1, 0))


def test_one_that_was_evicted_and_still_has_quota_waits_for_its_actors() -> None:
    evicted = Block(1, 16, admitted=False, reserved=True)
    assert change(FIXED, 1, [block(0), evicted], 17, 20) == Change()


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

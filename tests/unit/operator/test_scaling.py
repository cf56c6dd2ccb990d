"""The number of actors: from the law, from a user, from something else; which actors go; what is held."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rljob.api import load_manifest
from rljob.api.learner_status import LearnerStatus
from rljob.api.status import RLJobStatus
from rljob_operator.core.context import ReconcileContext
from rljob_operator.core.desired import DesiredState
from rljob_operator.core.member import Phase
from rljob_operator.core.observed import Observation
from rljob_operator.core.rules import actors

from tests.support.controller import (
    CARTPOLE,
    PONG,
    START,
    STORAGE,
    Controller,
    exited,
    gone,
    make_job,
    member,
    members,
    sample,
)

INTERNAL = "spec.autoscaling={mode: Internal, minReplicas: 1, maxReplicas: 8}"
HUNGRY = {
    "learner_wait_fraction": 0.75,
    "actors_blocked_fraction": 0.0,
    "consumption_per_second": 600.0,
    "production_per_second": 100.0,
    "queue_depth_batches": 50.0,
    "queue_bound_batches": 100.0,
}
"""Two actors bring 50 transitions/s each; the learner, that draws each six times, could digest 400/s: eight actors."""


class Fleet(Controller):
    """Actors start and leave at once; every look is five seconds after the one before."""

    updates = 0

    def step(self, figures: dict[str, Any] | None = None, **world: Any) -> Any:
        self.updates += 50
        if figures is not None:
            world["learner"] = sample(self.now + 5.0, self.updates, **figures)
        decision = self.look(5.0, **world)
        kept = [m for m in self.world["members"] if m.name not in decision.drain]
        new = [replace(member(n), ready_seconds=self.now, since_seconds=self.now) for n in decision.start]
        self.world["members"] = (*kept, *new)
        return decision

    def steps(self, count: int, figures: dict[str, Any] | None = None) -> Any:
        for _ in range(count):
            decision = self.step(figures)
        return decision

    @property
    def desired(self) -> int:
        return self.status.autoscaling.desired_replicas


def test_a_learner_that_waits_gets_the_actors_it_needs() -> None:
    fleet = Fleet(make_job(INTERNAL))
    fleet.steps(12, HUNGRY)
    fleet.expect(desired_replicas=2, ScalingActive=("False", "WarmingUp"))
    fleet.steps(6, HUNGRY)
    fleet.expect(ScalingActive=("True", "ValidMetricFound"))
    status = fleet.status.autoscaling
    assert f"-> {status.desired_replicas} actors" in status.last_decision
    assert status.last_scale_time is not None
    assert sum(m.name.startswith("actor") for m in fleet.world["members"]) == fleet.desired > 2


def test_the_laws_figures_are_per_inserted_transition() -> None:
    job, told = DesiredState(make_job(INTERNAL)), sample(START, 1000, **HUNGRY)
    look = ReconcileContext.at(job, RLJobStatus(), Observation(members(), told), START)
    figures = actors.law_sample(look)
    assert figures.consumption_per_second == 100.0, "600 draws a second, six of each transition"
    assert figures.items_per_batch == look.spec.algorithm.parameters.batch_size / 6
    for name in HUNGRY:
        missing = Observation((), sample(START, 1000, **(HUNGRY | {name: None})))
        assert actors.law_sample(ReconcileContext.at(job, RLJobStatus(), missing, START)) is None


@pytest.mark.parametrize(("manifest", "differ"), [(PONG, False), (CARTPOLE, True)])
def test_a_queue_of_unrolls_is_filled_as_far_as_the_user_says_and_a_credit_to_its_middle(
    manifest: Path, differ: bool
) -> None:
    def wanted(percent: int) -> object:
        fill = f"spec.autoscaling.target.queueUtilizationPercent={percent}"
        job = load_manifest(manifest, ["spec.actors.replicas=2", STORAGE, INTERNAL, fill])
        fleet = Fleet(job, members=members() if not differ else gone("replay-0"))
        fleet.steps(20, HUNGRY)
        return fleet.status.autoscaling.calculation

    assert (wanted(10) != wanted(90)) == differ


@pytest.fixture
def hungry_fleet() -> Fleet:
    fleet = Fleet(make_job(INTERNAL))
    fleet.steps(20, HUNGRY)
    assert fleet.desired > 2
    return fleet


@pytest.mark.parametrize(
    "bad", [{"learner_wait_fraction": -1}, {"production_per_second": float("nan")}, {"queue_depth_batches": None}]
)
def test_a_figure_that_is_wrong_holds_the_number(bad: dict[str, Any], hungry_fleet: Fleet) -> None:
    held = hungry_fleet.desired
    hungry_fleet.steps(6, HUNGRY | bad)
    hungry_fleet.expect(desired_replicas=held, ScalingActive=("False", "StaleMetrics"))


def test_a_silent_learner_holds_the_number_and_the_status_says_why(hungry_fleet: Fleet) -> None:
    held = hungry_fleet.desired
    hungry_fleet.world["missing"] = "the learner's status: timed out"
    hungry_fleet.steps(20)
    said = ("False", "StaleMetrics", "the learner's status: timed out")
    assert (hungry_fleet.desired, hungry_fleet.said("ScalingActive")) == (held, said)


def test_a_users_number_is_a_jump_and_then_the_law_goes_on(hungry_fleet: Fleet) -> None:
    before = hungry_fleet.desired
    decision = hungry_fleet.after(0.5, {"job": make_job(INTERNAL, "spec.actors.replicas=1")}, desired_replicas=1)
    assert len(decision.drain) == before - 1
    assert any("actors " in note.text for note in decision.notes)
    hungry_fleet.world["members"] = gone(*decision.drain, seen=hungry_fleet.world["members"])
    hungry_fleet.steps(60, HUNGRY)
    assert hungry_fleet.desired > 1


def test_a_learner_to_whom_nobody_sends_gets_its_first_actor() -> None:
    """Without any actor a learner reports neither a blocked share nor a production; that is no missing figure."""
    fleet = Fleet(
        make_job("spec.actors.replicas=0", "spec.autoscaling={mode: Internal, minReplicas: 0}"), members=members(0)
    )
    idle = {"learner_wait_fraction": 1.0, "consumption_per_second": 0.0, "queue_depth_batches": 0.0,
            "queue_bound_batches": 100.0}  # fmt: skip
    for _ in range(4):
        fleet.look(5.0, learner=sample(fleet.now + 5.0, 0, **idle))
    assert (fleet.desired, "actor-0" in fleet.last.start) == (1, True)
    assert "no actor plays" in fleet.status.autoscaling.last_decision


@pytest.mark.parametrize("kind", ["max_actors", "cores"])
@pytest.mark.parametrize(("bound", "most"), [(3, 3), (1, 1), (None, 8)])
def test_the_machine_bounds_the_number(bound: int | None, most: int, kind: str) -> None:
    fleet = Fleet(make_job(INTERNAL), **{kind: bound})
    fleet.steps(30, HUNGRY)  # no longer: growth that shows no gain is taken back
    assert fleet.desired == most


def test_a_fixed_number_runs_on_however_few_cores_and_the_status_says_so() -> None:
    fleet = Fleet(make_job("spec.actors.replicas=5"), cores=2)
    fleet.step()
    fleet.expect(desired_replicas=5, ScalingLimited=("False", "DesiredWithinRange"))
    assert "more than one for each of the 2 cores" in fleet.status.autoscaling.last_decision
    fleet.job = make_job("spec.actors.replicas=2")
    assert len(fleet.step().drain) == 3
    fleet.expect(last_decision="autoscaling.mode is Disabled: 2 actors as asked for")


EXTERNAL = "spec.autoscaling={mode: External, minReplicas: 1, maxReplicas: 8}"


@pytest.mark.parametrize(
    ("asked", "number", "limited"),
    [
        (1, 3, ("True", "TooFewReplicas")),
        (4, 4, ("False", "DesiredWithinRange")),
        (9, 5, ("True", "TooManyReplicas")),
    ],
)
@pytest.mark.parametrize("mode", ["Internal", "External"])
def test_a_number_outside_the_bounds_counts_as_the_nearest_within_them(
    mode: str, asked: int, number: int, limited: tuple[str, str]
) -> None:
    """As with a HorizontalPodAutoscaler: 1 is what a server fills in where no number is given."""
    bounds = f"spec.autoscaling={{mode: {mode}, minReplicas: 3, maxReplicas: 5}}"
    job = make_job(bounds, f"spec.actors.replicas={asked}")
    fleet = Fleet(job)
    fleet.step()
    fleet.expect(desired_replicas=number, **({"ScalingLimited": limited} if mode == "External" else {}))
    assert job.spec.requested_actors == number


@pytest.mark.parametrize("mode", ["Internal", "External", "Disabled"])
def test_an_hpa_beside_the_law_is_told(mode: str) -> None:
    fleet = Fleet(make_job("spec.actors.replicas=4", f"spec.autoscaling={{mode: {mode}, maxReplicas: 8}}"))
    fleet.after(0.5, {"scaled_by_hpa": True})
    assert (fleet.said("ScalingLimited")[1] == "TwoAutoscalers") is (mode == "Internal")
    fleet.after(0.5, {"scaled_by_hpa": False}, ScalingLimited=("False", "DesiredWithinRange"))


def test_external_shows_what_the_law_recommends_and_does_what_it_is_told() -> None:
    fleet = Fleet(make_job(EXTERNAL))
    fleet.steps(12, HUNGRY)
    fleet.expect(ScalingActive=("False", "WarmingUp"))
    fleet.steps(6, HUNGRY)
    fleet.expect(desired_replicas=2, recommended_replicas=8, limited_by="", ScalingActive=("True", "ValidMetricFound"))
    calculation = fleet.status.autoscaling.calculation
    assert (calculation.after, calculation.max_replicas) == (8, None)
    assert (
        len(fleet.after(0.5, {"job": make_job(EXTERNAL, "spec.actors.replicas=6")}, desired_replicas=6).start) == 4
    ), "at once"
    fleet.after(0.5, {"cores": 4}, desired_replicas=4)
    assert fleet.said("ScalingLimited")[1:] == ("TooManyReplicas", "6 asked for")


def test_the_numbers_of_a_decision_last_until_the_next_and_no_longer(hungry_fleet: Fleet) -> None:
    numbers = hungry_fleet.status.autoscaling.calculation
    assert numbers.after == hungry_fleet.desired
    hungry_fleet.after(1.0, calculation=numbers)
    last = hungry_fleet.after(
        0.5, {"job": make_job(INTERNAL, "spec.actors.replicas=1")}, desired_replicas=1, calculation=None
    ).status.autoscaling.last_decision
    assert last.startswith("actors.replicas changed from 2 to 1: ")


def lagging(**versions: int) -> LearnerStatus:
    known = [{"name": name.replace("_", "-"), "policy_version": version} for name, version in versions.items()]
    return sample(START, 1000, actors=known)


def test_victims_are_named_and_drained_never_more_than_that() -> None:
    seen = (
        *members(0),
        member("actor-0", ready_seconds=START - 50),
        member("actor-1", ready_seconds=START - 90),
        member("actor-2", ready_seconds=START - 10),
        member("actor-3", leaving_node=True),
        member("actor-4", Phase.STARTING),
        member("actor-5", Phase.DRAINING),
    )
    figures = lagging(actor_0=9, actor_1=5, actor_2=9, actor_3=9)
    order = ["actor-4", "actor-3", "actor-1", "actor-2"]
    for number in range(1, 6):
        controller = Controller(make_job(f"spec.actors.replicas={number}"), members=seen, learner=figures)
        assert controller.look().drain == tuple(order[: 5 - number])
    fewer = Controller(make_job("spec.actors.replicas=1"), members=seen, learner=figures)
    assert "actor-5" not in fewer.look().drain, "it is leaving already"


def test_a_name_is_used_again_only_when_its_member_is_gone() -> None:
    seen = (*members(0), member("actor-0", Phase.DRAINING), member("actor-1"))
    controller = Controller(make_job("spec.actors.replicas=3"), members=seen)
    assert set(controller.look().start) == {"actor-2", "actor-3"}
    left = (*members(0), member("actor-0", Phase.EXITED, asked=True), member("actor-1"))
    assert set(controller.look(members=left).start) == {"actor-0", "actor-2"}


def test_scaling_down_is_never_a_failure() -> None:
    fleet = Fleet(make_job("spec.actors.replicas=8"))
    fleet.step()
    fleet.step()
    drained = fleet.look(1.0, job=make_job("spec.actors.replicas=1")).drain
    ended = fleet.world["members"]
    for name in drained:
        ended = exited(name, ended, asked=True, exit_code=-9)
    fleet.after(1.0, {"members": ended, "keeps_remains": True}, end="", failures=[], ignored=0, start=())
    assert set(fleet.last.remove) == set(drained)


def test_the_scale_subresource_sees_what_is_there() -> None:
    seen = (*members(), member("actor-2", Phase.STARTING), member("actor-3", Phase.DRAINING))
    controller = Controller(make_job("spec.actors.replicas=3"), members=seen, selector="rljob.dev/job=pong")
    controller.look()
    there = controller.status.actors
    assert (*(there.replicas, there.ready, there.draining), there.selector) == (3, 2, 1, "rljob.dev/job=pong")

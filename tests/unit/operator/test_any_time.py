"""What may change at any time takes effect on a running job: each field is changed in the middle of a course that shows it.

A course is played twice, with the change and without; what the controller does must differ. Fields that no course is written for
fail the first test, so nothing gets onto the list without one.
"""

from collections.abc import Callable
from typing import Any

import pytest
from rljob.api.job import RLJobSpec
from rljob.api.live import live_values
from rljob.api.mutability import When, places
from rljob_operator.core.member import Phase

from tests.support.controller import (
    START,
    Controller,
    end_of,
    evaluations,
    exited,
    make_job,
    members,
    running,
    sample,
    verified,
)

Course = Callable[[Controller, Callable[[], None]], object]
"""Plays a running job and calls the second argument where the change is made; answers what is to differ."""


def said(controller: Controller) -> object:
    decision, status = controller.last, controller.status
    decided = (decision.start, decision.drain, decision.remove, decision.delete_job, decision.changes, end_of(decision))
    return *decided, status.autoscaling.desired_replicas, status.state, status.restarts.counted


def looks(*worlds: dict[str, Any], before: tuple[dict[str, Any], ...] = (), seconds: float = 1.0) -> Course:
    """Looks a second apart at the worlds ``before``, the change, then looks at these worlds, ``seconds`` apart; answers what was
    decided and said each time after the change."""

    def course(controller: Controller, change: Callable[[], None]) -> object:
        for world in before:
            controller.look(1.0, **world)
        change()
        answers = []
        for world in worlds or ({},):
            controller.look(seconds, **world)
            answers.append(said(controller))
        return answers

    return course


UP = START + 2.0
"""When a course begins."""


def failing(*ends: str) -> Course:
    """Members that end quickly, one after the other."""
    lives = [
        {"since_seconds": UP + 40.0 * life, "ready_seconds": None, "incarnation": f"life-{life}", "exit_code": 3}
        for life in range(len(ends))
    ]
    worlds = ({"members": exited(name, members(), **life)} for name, life in zip(ends, lives, strict=True))
    return looks(*worlds, seconds=40.0)


def flat(controller: Controller, change: Callable[[], None]) -> object:
    """The change, then a return that grows, then falls while the value loss grows; answers after how many moments the job was
    ended."""
    change()
    for number in range(1, 60):
        well = number < 15
        figures = {"mean_return": 1.0 + number / 100 if well else 0.5, "value_loss": 0.1 if well else 2.0}
        if end_of(controller.look(1.0, learner=sample(controller.now + 1.0, 1000 + 250 * number, **figures))):
            return number
    return None


DONE = {"learner": sample(START + 2, 1001, evaluations=evaluations(21.0)), "keeps_remains": True}
NO_JUDGE = ("spec.successPolicy.targetReturn=", "spec.evaluator.triggerReturn=")
NO_TARGET = ("spec.successPolicy.targetReturn=",)
FLAT = {"learner": sample(START + 2, 1001, evaluations=evaluations(1.0, 1.4, 1.3, 1.2))}
PLATEAU = (*NO_TARGET, "spec.earlyStopping.plateau={patienceEvaluations: 3}")
SHORT = (*NO_TARGET, "spec.earlyStopping.plateau={patienceEvaluations: 2}")
RETURN = (*NO_TARGET, "spec.earlyStopping.trainingReturn={windowRawFrames: 9000}")
LOSS = (*NO_TARGET, "spec.earlyStopping.valueLoss={windowRawFrames: 9000, graceRawFrames: 0}")
SCALED = "spec.autoscaling={mode: Internal, minReplicas: 1, maxReplicas: 8}"

FORK = f"spec.fork={{id: a, from: 'file:///b', digest: 'sha256:{'0' * 64}'}}"

COURSES: dict[str, tuple[tuple[str, ...], tuple[str, ...], Course]] = {
    # field: (the job, what is changed of it, the course)
    "suspend": ((), ("spec.suspend=true",), looks()),
    "fork.id": ((FORK,), ("spec.fork.id=b",), looks()),
    "fork.from": ((FORK,), ("spec.fork.from=file:///c",), looks()),
    "fork.digest": ((FORK,), (f"spec.fork.digest=sha256:{'1' * 64}",), looks()),
    "schedule": ((), ("spec.schedule=[{afterRawFrames: 1, set: {algorithm.learningRate: 0.001}}]",), looks()),
    **{
        path: ((), (f"spec.{path}={value}",), looks())
        for path, value in (
            ("algorithm.learningRate", 0.5),
            ("algorithm.gradientClipNorm", 1),
            ("algorithm.apeXDQN.epsilonBase", 0.3),
            ("algorithm.apeXDQN.epsilonExponent", 3),
            ("replay.prioritization.exponent", 0.3),
            ("replay.prioritization.importance", 0.5),
        )
    },
    "actors.replicas": ((), ("spec.actors.replicas=3",), looks()),
    "autoscaling.mode": ((SCALED,), ("spec.autoscaling.mode=Disabled", "spec.actors.replicas=5"), looks()),
    "evaluator.enabled": (NO_JUDGE, ("spec.evaluator.enabled=false",), looks()),
    "successPolicy.rawFrames": ((), ("spec.successPolicy.rawFrames=4000",), looks()),
    "earlyStopping.plateau.minDelta": (PLATEAU, ("spec.earlyStopping.plateau.minDelta=0.5",), looks(FLAT)),
    "earlyStopping.plateau.patienceEvaluations": (
        PLATEAU, ("spec.earlyStopping.plateau.patienceEvaluations=2",), looks(FLAT),
    ),
    "earlyStopping.plateau.graceRawFrames": (SHORT, ("spec.earlyStopping.plateau.graceRawFrames=1",), looks(FLAT)),
    "earlyStopping.trainingReturn.minDelta": (RETURN, ("spec.earlyStopping.trainingReturn.minDelta=0.5",), flat),
    "earlyStopping.trainingReturn.windowRawFrames": (RETURN, ("spec.earlyStopping.trainingReturn.windowRawFrames=18000",), flat),
    "earlyStopping.trainingReturn.graceRawFrames": (RETURN, ("spec.earlyStopping.trainingReturn.graceRawFrames=40000",), flat),
    "earlyStopping.valueLoss.factor": (LOSS, ("spec.earlyStopping.valueLoss.factor=30",), flat),
    "earlyStopping.valueLoss.windowRawFrames": (LOSS, ("spec.earlyStopping.valueLoss.windowRawFrames=18000",), flat),
    "earlyStopping.valueLoss.graceRawFrames": (LOSS, ("spec.earlyStopping.valueLoss.graceRawFrames=50000",), flat),
    "backoffLimit": ((), ("spec.backoffLimit=1",), failing("learner", "replay-0")),
    "failurePolicy.rules": (
        (), ("spec.failurePolicy.rules=[{name: a, onExitCodes: {values: [3]}, action: FailJob}]",), failing("actor-0"),
    ),
    "activeDeadlineSeconds": ((), ("spec.activeDeadlineSeconds=20",), looks(seconds=25.0)),
    "startupDeadlineSeconds": ((), ("spec.startupDeadlineSeconds=20",), looks(seconds=25.0)),
    "progressDeadlineSeconds": ((), ("spec.progressDeadlineSeconds=100",), looks(seconds=120.0)),
    "ttlSecondsAfterFinished": (
        (), ("spec.ttlSecondsAfterFinished=0",), looks({}, {}, before=(DONE, {"members": ()})),
    ),
}  # fmt: skip
AUTOSCALING = "autoscaling."
"""autoscaling/test_recompute.py plays the law itself for the fields that begin so."""


def test_every_field_that_may_change_at_any_time_has_a_course() -> None:
    every = places(RLJobSpec, whole_sections=False)
    allowed = {place.path for place in every if place.mutability.when is When.ANY_TIME}
    allowed |= set(live_values(make_job().spec)) - {"algorithm.learningRateFinal"}  # at most learningRate
    law = {path for path in allowed if path.startswith(AUTOSCALING)} - {"autoscaling.mode"}
    assert allowed - law == set(COURSES)


@pytest.mark.parametrize("path", COURSES)
def test_a_change_takes_effect_on_a_running_job(path: str) -> None:
    sets, changed, course = COURSES[path]

    def played(*change: str) -> object:
        controller = up(*sets) if path != "startupDeadlineSeconds" else coming_up(*sets)

        def make() -> None:
            suspended = ("spec.suspend=true",) if controller.job.spec.suspend else ()
            controller.job = make_job(*sets, *suspended, *change)

        return course(controller, make)

    assert played(*changed) != played()


def up(*sets: str) -> Controller:
    controller = running(*sets)
    controller.look(1.0, checkpoint=verified(controller.now))
    return controller


def coming_up(*sets: str) -> Controller:
    controller = Controller(make_job(*sets), members=members(learner=Phase.STARTING))
    controller.look()
    return controller

"""How each condition and reason comes about: scenes that a controller is led through, and what it has said in them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from rljob.api.conditions import Reason
from rljob_operator.core.desired import Refusal, Session
from rljob_operator.core.member import Member, Phase
from rljob_operator.core.observed import Admission, CheckpointFacts, CheckpointState

from tests.support.controller import (
    METRIC,
    SERVERS,
    START,
    Controller,
    evaluation,
    evaluations,
    exited,
    gone,
    make_job,
    member,
    members,
    reporting,
    sample,
    verified,
)

INTERNAL = "spec.autoscaling={mode: Internal, minReplicas: 1, maxReplicas: 6}"
FIGURES = {
    "learner_wait_fraction": 0.8,
    "actors_blocked_fraction": 0.0,
    "consumption_per_second": 6400.0,
    "production_per_second": 100.0,
    "queue_depth_batches": 1.0,
    "queue_bound_batches": 100.0,
    "policy_lag_updates_p95": 10.0,
}
Reached = set[tuple[str, str, str]]


class Watched(Controller):
    """A controller that notes every (type, status, reason) it has said."""

    def __init__(self, *args: Any, **world: Any) -> None:
        super().__init__(*args, **world)
        self.reached: Reached = set()

    def look(self, after: float = 0.0, **world: Any) -> Any:
        decision = super().look(after, **world)
        self.reached |= {(c.type, c.status, c.reason) for c in self.status.conditions}
        return decision


def up(*sets: str, **world: Any) -> Watched:
    controller = Watched(make_job(*sets), **world)
    controller.trained()
    return controller


class Scene(NamedTuple):
    """A job, and looks at it: so many seconds after the one before, at what has changed by then."""

    sets: tuple[str, ...] = ()
    looks: tuple[tuple[float, dict[str, Any]], ...] = ((0.0, {}),)
    world: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it
    trained: bool = True

    def __call__(self) -> Watched:
        controller = Watched(make_job(*self.sets), **self.world)
        if self.trained:
            controller.trained()
        for seconds, changed in self.looks:
            controller.look(seconds, **changed)
        return controller


def ends(*sets: str, after: float = 1.0, **world: Any) -> Scene:
    """What a look finds ends the job, then everything has left, and then it is edited."""
    return Scene(sets, ((after, world), (1.0, {"members": ()}), (1.0, {"generation": 9})))


def comes_up(*sets: str, **world: Any) -> Scene:
    """The first look at a job."""
    return Scene(sets, world=world, trained=False)


def waits(reason: Reason | None) -> tuple[Member, ...]:
    """All roles, none of which comes up."""
    names = ("replay-0", "learner", "inference-0", "actor-0")
    return tuple(member(name, Phase.STARTING, waiting=reason) for name in names)


def suspended(controller: Watched, job: Any) -> Watched:
    controller.job = job
    controller.looks({}, {"members": members(0)[:2]}, {"checkpoint": verified(controller.now + 2.0)})
    return controller


def crash_looping() -> Watched:
    seen = (*members(1), member("inference-0"))
    controller = up("spec.backoffLimit=1000", "spec.actors.replicas=1", *SERVERS, members=seen)
    for life in range(4):
        for name in ("replay-0", "learner", "inference-0", "actor-0"):
            seen = exited(name, seen, incarnation=f"{name}-{life}", ready_seconds=None, since_seconds=controller.now)
        controller.look(1.0, members=seen)
    return controller


def scaling(*sets: str, seconds: int = 200, **figures: Any) -> Watched:
    """An Internal job whose learner waits four fifths of its time for its two actors, a look every five seconds."""
    controller = Watched(make_job(INTERNAL, *sets))
    for k in range(seconds // 5):
        now = START + 5.0 * (k + 1)
        controller.look(5.0, learner=sample(now, 100 * (k + 1), **(FIGURES | figures)))
        extra = [replace(member(n), since_seconds=now) for n in controller.last.start if n.startswith("actor")]
        controller.world["members"] = (*gone(*controller.last.drain, seen=controller.world["members"]), *extra)
    return controller


def actors_crash_looping() -> Watched:
    controller = up()
    for life in range(5):
        seen = exited("actor-0", members(), incarnation=f"a{life}", ready_seconds=None)
        controller.look(1.0, members=exited("actor-1", seen, incarnation=f"b{life}", ready_seconds=None))
    controller.look(1.0, members=())
    return controller


def resumed() -> Watched:
    controller = suspended(up(), make_job("spec.suspend=true"))
    controller.looks({"members": ()}, {"job": make_job()})
    return controller


def suspended_with_servers() -> Watched:
    controller = suspended(up(*SERVERS), make_job("spec.suspend=true", *SERVERS))
    controller.look(1.0, members=())
    assert {controller.reason(f"{role}Ready") for role in ("Learner", "Inference", "Actors")} == {
        ("False", "PodsStopped")
    }
    return controller


def stale_metrics() -> Watched:
    controller = scaling()
    for _ in range(20):
        controller.look(5.0, missing="the learner's status: timed out")
    return controller


def few_wanted() -> Watched:
    """The learner needs less than one actor's share of three."""
    return scaling(
        "spec.autoscaling.minReplicas=2",
        "spec.actors.replicas=3",
        seconds=600,
        learner_wait_fraction=0.0,
        actors_blocked_fraction=0.9,
        queue_depth_batches=100.0,
    )


REFUSALS = (
    Reason.INVALID_SPEC,
    Reason.POD_TEMPLATE_REJECTED,
    Reason.POD_SECURITY_FORBIDDEN,
    Reason.NAME_CONFLICT,
    Reason.NAMESPACE_TERMINATING,
    Reason.KEYS_LOST,
    Reason.NOT_MADE,
    Reason.RENDERING_UNKNOWN,
)
STUCK = (Reason.UNSCHEDULABLE, Reason.IMAGE_PULL_FAILED, Reason.QUOTA_EXCEEDED)
NODES_LOST = tuple(replace(m, node_lost=True, node_name="cpu-1") for m in (*members(), member("inference-0")))
"""Every node is lost: no member is heard."""

SCENES: tuple[Callable[[], Watched], ...] = (
    suspended_with_servers,
    *(comes_up(members=(), refusal=Refusal(reason, "why")) for reason in REFUSALS),
    *(
        comes_up(members=(), admission=Admission(False, reason))
        for reason in (Reason.WAITING_FOR_QUOTA, Reason.EVICTED)
    ),
    *(comes_up(*SERVERS, members=waits(reason)) for reason in (None, *STUCK)),
    Scene(SERVERS, ((1.0, {"members": NODES_LOST}),)),
    crash_looping,
    Scene(),
    ends(members=gone("actor-0", "actor-1")),
    ends("spec.backoffLimit=100", members=tuple(replace(m, phase=Phase.EXITED, exit_code=1) for m in members())),
    resumed,
    Scene(
        looks=((1.0, {"admission": Admission(False, Reason.EVICTED)}), (1.0, {"members": ()})),
        world={"admission": Admission(True, Reason.QUOTA_RESERVED)},
    ),
    Scene(looks=((1.0, {"session": Session(interrupted=True)}),), world={"session": Session()}),
    ends(learner=sample(START + 2, 1001, evaluations=[evaluation(21.0)])),
    ends(METRIC, learner=sample(START + 2, 1001, evaluations=[reporting(is_success=1.0)])),
    ends("spec.successPolicy.rawFrames=100", learner=sample(START + 2, 1001, raw_frames_total=100)),
    ends(
        "spec.earlyStopping.plateau={patienceEvaluations: 1}",
        learner=sample(START + 2, 1001, evaluations=evaluations(1.0, 0.5)),
    ),
    ends(members=exited("learner", members(), exit_code=78)),
    ends(members=exited("learner", members(), exit_code=70)),
    ends("spec.backoffLimit=0", members=exited("learner", members(), exit_code=1)),
    ends("spec.activeDeadlineSeconds=50", after=100.0),
    ends(after=2000.0),
    Scene((), ((0.0, {}), (1800.0, {}), (1.0, {"members": ()})), {"members": members(learner=Phase.STARTING)}, False),
    actors_crash_looping,
    *(
        Scene(world={"checkpoint": CheckpointFacts(state, message="why")})
        for state in CheckpointState
        if state is not CheckpointState.VERIFIED
    ),
    Scene(("spec.checkpoint.intervalSeconds=10",), ((100.0, {}),), {"checkpoint": verified(START)}),
    *(Scene(("spec.tracking.wandb.project=p",), world={"untracked": each}) for each in ({}, {"W&B": "it is away"})),
    Scene(looks=((125.0, {"learner": sample(START + 126, 1000, learner_wait_fraction=1.0)}),)),
    Scene(looks=((5.0, {"learner": sample(START + 6, 1000, standstill="replay-0 blocks inserts")}),)),
    Scene(looks=((125.0, {}),)),
    stale_metrics,
    few_wanted,
    lambda: scaling(),
    lambda: scaling("spec.autoscaling.pause=All"),
    lambda: scaling("spec.autoscaling.pause=ScaleOut"),
    lambda: scaling(policy_lag_updates_p95=1e4),
    lambda: scaling("spec.autoscaling.maxReplicas=60", seconds=120),
)
TOO_MANY = {"learner_wait_fraction": 0.0, "actors_blocked_fraction": 0.9, "queue_depth_batches": 100.0}


def more_scaling_scenes() -> Reached:
    """Reasons of ScalingLimited that need a place, a queue or a history of their own."""
    quota = Watched(make_job(INTERNAL, "spec.autoscaling.mode=External", "spec.actors.replicas=5"))
    quota.look(admission=Admission(True, Reason.QUOTA_RESERVED, max_actors=3))
    stuck = Watched(make_job(INTERNAL, "spec.autoscaling.maxReplicas=60"))
    pending = member("actor-2", Phase.STARTING, waiting=Reason.UNSCHEDULABLE)
    for k in range(40):
        stuck.look(5.0, members=(*members(), pending), learner=sample(START + 5.0 * (k + 1), k + 1, **FIGURES))
    fewer = [scaling(f"spec.actors.replicas={most}", seconds=400, **TOO_MANY) for most in (6, 12)]
    return set().union(*(controller.reached for controller in (quota, up(INTERNAL, scaled_by_hpa=True), stuck, *fewer)))


def diminishing() -> Reached:
    """Actors are added, and the learner gets nothing more from them."""
    more = {"learner_wait_fraction": 0.5, "queue_depth_batches": 0.0, "production_per_second": 100.0}
    return scaling("spec.autoscaling.maxReplicas=60", seconds=1000, **more).reached

"""How each condition and reason comes about: scenes that a controller is led through, and what it has said in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rljob.api.conditions import Reason
from rljob_operator.core.desired import Refusal, Session
from rljob_operator.core.member import Phase
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


def finish(controller: Watched, **world: Any) -> Watched:
    controller.look(1.0, **world)
    controller.look(1.0, members=())
    return controller


def suspended(controller: Watched, job: Any) -> Watched:
    controller.job = job
    controller.look(1.0)
    controller.look(1.0, members=members(0)[:2])
    controller.look(1.0, checkpoint=verified(controller.now))
    return controller


def ended_roles(reason: Reason | None = None) -> Watched:
    """All roles fail to come up for one reason."""
    seen = (
        member("replay-0", Phase.STARTING, waiting=reason),
        member("learner", Phase.STARTING, waiting=reason),
        member("inference-0", Phase.STARTING, waiting=reason),
        member("actor-0", Phase.STARTING, waiting=reason),
    )
    controller = Watched(make_job(*SERVERS), members=seen)
    controller.look()
    return controller


def nodes_lost() -> Watched:
    """Every node is: nothing is heard of any member."""
    controller = up(*SERVERS)
    seen = (*members(), member("inference-0"))
    controller.look(1.0, members=tuple(replace(m, node_lost=True, node_name="cpu-1") for m in seen))
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
        extra = [n for n in (controller.last.start if controller.last else ()) if n.startswith("actor")]
        drained = controller.last.drain if controller.last else ()
        seen = [m for m in controller.world["members"] if m.name not in drained]
        controller.world["members"] = (*seen, *(replace(member(n), since_seconds=now) for n in extra))
    return controller


def tell(figures: dict[str, Any]) -> Callable[[], Watched]:
    return lambda: finish(up(), learner=sample(START + 2, 1001, **figures))


def failing(*sets: str, **fields: Any) -> Callable[[], Watched]:
    name = fields.pop("name", "learner")
    return lambda: finish(up(*sets), members=exited(name, members(), **fields))


def waiting(seconds: float, *sets: str) -> Callable[[], Watched]:
    def run() -> Watched:
        controller = up(*sets)
        controller.look(seconds)
        return finish(controller)

    return run


def starting_too_long() -> Watched:
    controller = Watched(make_job(), members=members(learner=Phase.STARTING))
    controller.look()
    controller.look(1800.0)
    return finish(controller)


def actors_crash_looping() -> Watched:
    controller = up()
    for life in range(5):
        seen = exited("actor-0", members(), incarnation=f"a{life}", ready_seconds=None)
        controller.look(1.0, members=exited("actor-1", seen, incarnation=f"b{life}", ready_seconds=None))
    return finish(controller)


def resumed() -> Watched:
    controller = suspended(up(), make_job("spec.suspend=true"))
    controller.look(1.0, members=())
    controller.job = make_job()
    controller.look(1.0)
    return controller


def suspended_with_servers() -> Watched:
    controller = suspended(up(*SERVERS), make_job("spec.suspend=true", *SERVERS))
    controller.look(1.0, members=())
    assert {controller.reason(f"{role}Ready") for role in ("Learner", "Inference", "Actors")} == {
        ("False", "PodsStopped")
    }
    return controller


def quota_taken_back() -> Watched:
    controller = up(admission=Admission(True, Reason.QUOTA_RESERVED))
    controller.look(1.0, admission=Admission(False, Reason.EVICTED))
    controller.look(1.0, members=())
    return controller


def session_over() -> Watched:
    controller = up(session=Session())
    controller.look(1.0, session=Session(interrupted=True))
    return controller


def refused(reason: Reason) -> Callable[[], Watched]:
    def run() -> Watched:
        controller = Watched(make_job(), members=(), refusal=Refusal(reason, "why"))
        controller.look()
        return controller

    return run


def not_admitted(reason: Reason) -> Callable[[], Watched]:
    def run() -> Watched:
        controller = Watched(make_job(), members=(), admission=Admission(False, reason))
        controller.look()
        return controller

    return run


def checkpoint(state: CheckpointState) -> Callable[[], Watched]:
    return lambda: up(checkpoint=CheckpointFacts(state, message="why"))


def tracked(untracked: dict[str, str]) -> Callable[[], Watched]:
    return lambda: up("spec.tracking.wandb.project=p", untracked=untracked)


def stale_checkpoint() -> Watched:
    controller = up("spec.checkpoint.intervalSeconds=10", checkpoint=verified(START))
    controller.look(100.0)
    return controller


def starved() -> Watched:
    controller = up()
    controller.look(125.0, learner=sample(START + 126, 1000, learner_wait_fraction=1.0))
    return controller


def both_sides_stand_still() -> Watched:
    controller = up()
    controller.look(5.0, learner=sample(START + 6, 1000, standstill="replay-0 blocks inserts"))
    return controller


def stalled() -> Watched:
    controller = up()
    controller.look(125.0)
    return controller


def stale_metrics() -> Watched:
    controller = scaling()
    for _ in range(20):
        controller.look(5.0, missing="the learner's status: timed out")
    return controller


def suddenly_more_wanted() -> Watched:
    """The two actors are enough for a while, then the learner becomes faster."""
    controller = scaling(SLOW_UP, seconds=150, learner_wait_fraction=0.0, queue_depth_batches=50.0)
    for k in range(12):
        controller.look(5.0, learner=sample(controller.now + 5.0, 10_000 + k, **FIGURES))
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
    Reason.IMAGE_SCHEMA_MISMATCH,
    Reason.RENDERING_UNKNOWN,
)
FOUR_PODS = "policies: [{type: Pods, value: 4, periodSeconds: 15}]"
SLOW_UP = f"spec.autoscaling.behavior.scaleUp={{stabilizationWindowSeconds: 300, {FOUR_PODS}}}"

SCENES: tuple[Callable[[], Watched], ...] = (
    suspended_with_servers,
    *(refused(r) for r in REFUSALS),
    *(not_admitted(r) for r in (Reason.WAITING_FOR_QUOTA, Reason.EVICTED)),
    ended_roles,
    lambda: ended_roles(Reason.UNSCHEDULABLE),
    lambda: ended_roles(Reason.IMAGE_PULL_FAILED),
    lambda: ended_roles(Reason.QUOTA_EXCEEDED),
    nodes_lost,
    crash_looping,
    lambda: up(),
    lambda: finish(up(), members=gone("actor-0", "actor-1")),
    lambda: finish(up("spec.backoffLimit=100"), members=tuple(replace(m, phase=Phase.EXITED, exit_code=1) for m in members())),
    resumed,
    quota_taken_back,
    session_over,
    tell({"evaluations": [evaluation(21.0)]}),
    lambda: finish(up(METRIC), learner=sample(START + 2, 1001, evaluations=[reporting(is_success=1.0)])),
    lambda: finish(up("spec.successPolicy.rawFrames=100"), learner=sample(START + 2, 1001, raw_frames_total=100)),
    lambda: finish(
        up("spec.earlyStopping.plateau={patienceEvaluations: 1}"),
        learner=sample(START + 2, 1001, evaluations=evaluations(1.0, 0.5)),
    ),
    failing(exit_code=78),
    failing(exit_code=70),
    failing("spec.backoffLimit=0", exit_code=1),
    lambda: finish(
        up(), members=exited("learner", members(), exit_code=78), checkpoint=CheckpointFacts(CheckpointState.CORRUPT)
    ),
    waiting(100.0, "spec.activeDeadlineSeconds=50"),
    waiting(2000.0),
    starting_too_long,
    actors_crash_looping,
    *(checkpoint(s) for s in CheckpointState if s is not CheckpointState.VERIFIED),
    stale_checkpoint,
    tracked({}),
    tracked({"W&B": "the server is away"}),
    starved,
    both_sides_stand_still,
    stalled,
    stale_metrics,
    few_wanted,
    lambda: scaling(),
    lambda: scaling("spec.autoscaling.pause=All"),
    lambda: scaling("spec.autoscaling.pause=ScaleOut"),
    lambda: scaling(policy_lag_updates_p95=1e4),
    lambda: scaling("spec.autoscaling.maxReplicas=60", seconds=120),
    suddenly_more_wanted,
)  # fmt: skip


def more_scaling_scenes() -> Reached:
    """Reasons of ScalingLimited that need a place, a queue or a history of their own."""
    reached: Reached = set()
    quota = Watched(make_job(INTERNAL, "spec.autoscaling.mode=External", "spec.actors.replicas=5"))
    quota.look(admission=Admission(True, Reason.QUOTA_RESERVED, max_actors=3))
    reached |= quota.reached
    for seconds, sets, figures in (
        (
            400,
            ("spec.actors.replicas=6",),
            {"learner_wait_fraction": 0.0, "actors_blocked_fraction": 0.9, "queue_depth_batches": 100.0},
        ),
        (
            400,
            (
                "spec.actors.replicas=6",
                "spec.autoscaling.behavior.scaleDown={policies: [{type: Pods, value: 1, periodSeconds: 60}]}",
            ),
            {"learner_wait_fraction": 0.0, "actors_blocked_fraction": 0.9, "queue_depth_batches": 100.0},
        ),
    ):
        reached |= scaling(*sets, seconds=seconds, **figures).reached
    stuck = Watched(make_job(INTERNAL, "spec.autoscaling.maxReplicas=60"))
    pending = member("actor-2", Phase.STARTING, waiting=Reason.UNSCHEDULABLE)
    for k in range(40):
        stuck.look(5.0, members=(*members(), pending), learner=sample(START + 5.0 * (k + 1), k + 1, **FIGURES))
    reached |= stuck.reached
    return reached


def diminishing() -> Reached:
    """Actors are added, and the learner gets nothing more from them."""
    controller = Watched(make_job(INTERNAL, "spec.autoscaling.maxReplicas=60"))
    for k in range(200):
        now = START + 5.0 * (k + 1)
        figures = FIGURES | {"learner_wait_fraction": 0.5, "queue_depth_batches": 0.0, "production_per_second": 100.0}
        controller.look(5.0, learner=sample(now, 100 * (k + 1), **figures))
        started = [n for n in (controller.last.start if controller.last else ()) if n.startswith("actor")]
        controller.world["members"] += tuple(replace(member(n), since_seconds=now) for n in started)
    return controller.reached

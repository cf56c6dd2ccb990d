"""The small jobs that are searched."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rljob.api import RLJob, load_manifest
from rljob.api.lifecycle import CheckpointSpec
from rljob_operator.core.desired import DesiredState

SUPPORT = Path(__file__).parent.parent / "support"
CLAIM = "spec.checkpoint.storage={persistentVolumeClaim: {claimName: checkpoints}}"
LIMITS = (
    "spec.startupDeadlineSeconds=100",
    "spec.progressDeadlineSeconds=100",
    "spec.activeDeadlineSeconds=",
    "spec.backoffLimit=1",
    "spec.failurePolicy.resetAfterSeconds=40",
    "spec.successPolicy={rawFrames: 300, targetReturn: {value: 18}}",
)
SUSPEND_TIMEOUT_SECONDS = 100
BOUNDS_SUSPENSION = "suspend_timeout_seconds" in CheckpointSpec.model_fields
"""An earlier commit, on which the search is tried, waits for ever, and refuses to suspend without a place for checkpoints."""
if BOUNDS_SUSPENSION:
    LIMITS = (*LIMITS, f"spec.checkpoint.suspendTimeoutSeconds={SUSPEND_TIMEOUT_SECONDS}")
BUDGET = 3
"""Advances of the learner, of a hundred raw frames each, after which the budget of frames is used up."""
TARGET = 18.0
RUNS, SUSPENDED = 0, 1


@dataclass(frozen=True)
class SmallJob:
    """One job and what its user may make of it.

    Attributes:
        manifest: a file of tests/support.
        sets: beside `LIMITS`.
        edits: further specs that its user may change to, while it runs or is suspended.
        tormented: members that everything happens to; to the others nothing does.
        claim: its checkpoints outlive the learner's pod.
    """

    name: str
    manifest: str
    sets: tuple[str, ...]
    tormented: tuple[str, ...]
    edits: tuple[tuple[str, ...], ...] = ()
    claim: bool = True
    specs: tuple[DesiredState, ...] = field(init=False)
    members: tuple[str, ...] = field(init=False)
    core: tuple[str, ...] = field(init=False)
    """Members without any of which nothing is learned."""
    counting: tuple[str, ...] = field(init=False)
    """Members whose failures count towards backoffLimit: the core, and the judge of a target."""

    def __post_init__(self) -> None:
        specs = [self._desired(k, more) for k, more in enumerate(((), ("spec.suspend=true",), *self.edits))]
        object.__setattr__(self, "specs", tuple(specs))
        members = tuple(wanted(specs[RUNS].job))
        object.__setattr__(self, "members", members)
        core = tuple(each for each in members if not each.startswith(("actor", "evaluator")))
        object.__setattr__(self, "core", core)
        judged = specs[RUNS].job.spec.success_policy.target_return is not None
        object.__setattr__(self, "counting", (*core, "evaluator") if judged else core)

    def _desired(self, number: int, more: tuple[str, ...]) -> DesiredState:
        storage = (CLAIM,) if self.claim else ()
        job = load_manifest(SUPPORT / self.manifest, [*LIMITS, *storage, *self.sets, *more])
        return DesiredState(job, 1 + number, written="fields-values-1")


def wanted(job: RLJob) -> list[str]:
    """Members of a job while nothing has happened to it."""
    spec = job.spec
    names = [f"replay-{k}" for k in range(spec.replay.shards if spec.replay is not None else 0)]
    names += ["learner", *(f"actor-{k}" for k in range(spec.actors.replicas))]
    return names + (["evaluator"] if spec.evaluator.enabled else [])


NO_EVALUATOR = ("spec.evaluator.enabled=false", "spec.evaluator.triggerReturn=", "spec.successPolicy={rawFrames: 300}")

JOBS = {
    job.name: job
    for job in (
        SmallJob(
            "impala",
            "cartpole.yaml",
            ("spec.actors.replicas=2", *NO_EVALUATOR),
            ("learner", "actor-0"),
            edits=(("spec.actors.replicas=1",),),
        ),
        SmallJob("apex", "pong.yaml", ("spec.actors.replicas=1",), ("replay-0", "learner", "evaluator")),
        SmallJob(
            "in-its-pod",
            "cartpole.yaml",
            (
                "spec.actors.replicas=1",
                *(() if BOUNDS_SUSPENSION else ("spec.checkpoint.onSuspend=Skip",)),
                *NO_EVALUATOR,
            ),
            ("learner", "actor-0"),
            claim=False,
        ),
        SmallJob(
            "lenient",
            "cartpole.yaml",
            (
                "spec.actors={replicas: 2, onEviction: Ignore}",
                "spec.checkpoint.onSuspend=BestEffort",
                "spec.podCleanup={onFailed: All}",
                "spec.backoffLimit=0",
                *NO_EVALUATOR,
            ),
            ("learner", "actor-0"),
        ),
    )
}

"""The small jobs that are searched."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
from rljob.api import load_manifest
from rljob_operator.core.desired import DesiredState
from rljob_operator.core.rules import failures, suspension

SUPPORT = Path(__file__).parent.parent / "support"
CLAIM = "spec.checkpoint.storage={persistentVolumeClaim: {claimName: checkpoints}}"
SUSPEND_TIMEOUT_SECONDS, FORGIVEN_SECONDS = 100.0, 40.0
"""Within the search, where nothing grows older than `statuses.OLDEST_SECONDS`."""
LIMITS = (
    "spec.startupDeadlineSeconds=100",
    "spec.progressDeadlineSeconds=100",
    "spec.activeDeadlineSeconds=",
    "spec.backoffLimit=1",
    "spec.successPolicy={rawFrames: 300, targetReturn: {value: 18}}",
)
BUDGET = 3
"""Advances of the learner, of a hundred raw frames each, after which the budget of frames is used up."""
TARGET = 18.0
RUNS, SUSPENDED = 0, 1


@contextmanager
def short_waits() -> Iterator[None]:
    """The controller waits for less long than it does elsewhere."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(suspension, "PATIENCE_SECONDS", SUSPEND_TIMEOUT_SECONDS)
        patched.setattr(failures, "FORGIVEN_SECONDS", FORGIVEN_SECONDS)
        yield


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

    @cached_property
    def specs(self) -> tuple[DesiredState, ...]:
        """What its user may want of it: that it runs, that it is suspended, each of the edits."""
        wishes = enumerate(((), ("spec.suspend=true",), *self.edits))
        jobs = [(number, load_manifest(SUPPORT / self.manifest, [*self.written, *more])) for number, more in wishes]
        return tuple(DesiredState(job, 1 + number, written="fields-values-1") for number, job in jobs)

    @property
    def written(self) -> list[str]:
        """The overrides that make the manifest this job's."""
        return [*LIMITS, *((CLAIM,) if self.claim else ()), *self.sets]

    @cached_property
    def core(self) -> tuple[str, ...]:
        """Members without any of which nothing is learned."""
        replay = self.specs[RUNS].job.spec.replay
        return (*(f"replay-{k}" for k in range(replay.shards if replay is not None else 0)), "learner")

    @cached_property
    def counting(self) -> tuple[str, ...]:
        """Members whose failures count towards backoffLimit: the core, and the judge of a target."""
        judged = self.specs[RUNS].job.spec.success_policy.target_return is not None
        return (*self.core, "evaluator") if judged else self.core


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
            ("spec.actors.replicas=1", *NO_EVALUATOR),
            ("learner", "actor-0"),
            claim=False,
        ),
        SmallJob(
            "strict",
            "cartpole.yaml",
            (
                "spec.actors.replicas=2",
                "spec.backoffLimit=0",
                *NO_EVALUATOR,
            ),
            ("learner", "actor-0"),
        ),
    )
}

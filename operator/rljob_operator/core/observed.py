"""What the controller sees of a job: the values that every substrate reports, and `decide` reads.

All times are Unix seconds. A substrate reports facts and takes no decisions: what a fact means for the job is decided once, in
`decide`, from these values and from the job's status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rljob.api.conditions import Reason

from rljob_operator.core.member import Member, Role


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One verdict of the evaluator; ``finished`` is False where it was given up early, which makes it no verdict.

    ``version`` is that of the policy it judged and grows from one to the next; 0 where it is not known. ``seed`` is that of its
    games, None where it is not known.
    """

    mean: float
    standard_error: float
    episodes: int
    finished: bool = True
    version: int = 0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class LearnerSample:
    """The learner's `/status`, checked by `core.learner_sample`: a figure that is missing or out of range is None, never 0.

    Attributes:
        taken_seconds: when the document was fetched.
        depth_batches, bound_batches: the learner's queue and its limit.
        batch_size: transitions or unrolls of a batch.
        consumption_per_second: what the learner learns from, transitions as often as they are drawn, or unrolls.
        production_per_second: what all actors make, transitions or unrolls.
        standstill: why neither batches nor inserts move, in the learner's words; empty where they do.
        stands_still: it leaves the cores to the games of an evaluation.
        lag_limit_updates: the age in updates above which the learner gives unrolls up.
        given_up: that it gives up many of them, in its words; empty where it does not.
        epoch: the learner's; 0 where it does not say.
        lags: policy lag by actor's name, in published versions, of the actors that the learner knows.
        document: the document as it came, for views; nothing is decided from it.
    """

    taken_seconds: float
    updates: int
    raw_frames_total: int | None = None
    mean_return: float | None = None
    evaluations: tuple[Evaluation, ...] = ()
    wait_fraction: float | None = None
    blocked_fraction: float | None = None
    consumption_per_second: float | None = None
    production_per_second: float | None = None
    depth_batches: float | None = None
    bound_batches: float | None = None
    batch_size: int | None = None
    policy_lag_updates_p95: float | None = None
    lag_limit_updates: float | None = None
    standstill: str = ""
    stands_still: bool = False
    given_up: str = ""
    epoch: int = 0
    lags: Mapping[str, float] = field(default_factory=dict)
    document: Mapping[str, Any] = field(default_factory=dict, compare=False)


class CheckpointState(StrEnum):
    """What is known about a job's checkpoints."""

    MISSING = "Missing"
    VERIFIED = "Verified"
    CORRUPT = "Corrupt"
    STORAGE_ERROR = "StorageError"
    GONE = "Gone"


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """The newest checkpoint, as re-read by the substrate.

    ``state`` is about the newest attempt: after a failed one, or where the newest is corrupt, ``step``, ``time_seconds``,
    ``uri`` and ``digest`` are those of the newest checkpoint that did verify (step 0 and no uri: there is none).
    ``time_seconds`` is by the learner's clock, ``requested_seconds`` the newest request that it was begun after, as the
    controller wrote it (0: none).
    """

    state: CheckpointState = CheckpointState.MISSING
    step: int = 0
    time_seconds: float = 0.0
    uri: str = ""
    digest: str = ""
    message: str = ""
    requested_seconds: float = 0.0

    @property
    def usable(self) -> bool:
        """Whether there is a verified checkpoint to go on from."""
        return bool(self.uri)


@dataclass(frozen=True, slots=True)
class Admission:
    """What the job's queue says. ``reason`` is one of Admitted's reasons."""

    admitted: bool
    reason: Reason
    message: str = ""
    workload: str = ""
    actor_blocks: int = 0
    pending_blocks: int = 0
    max_actors: int | None = None
    """Actors that the admitted blocks allow; None sets no limit."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What a substrate finds of a job, at one moment.

    Attributes:
        members: all that exist or have ended and not been replaced, and those that can't be made, as ABSENT with why; any other
            that is not listed is ABSENT, too.
        learner: the newest sample there is, however old; None where none was ever taken.
        missing: why this look brought no sample, or nothing; for the message of ScalingActive.
        checkpoint: the newest checkpoint.
        admission: what the queue says; None where no queue is asked.
        max_actors: what the place allows besides maxReplicas (`rljob run --max-actors`), in every mode; None sets no limit.
        cores: of the machine. One actor a core is as many as a number that the controller or an autoscaler chooses may reach; one
            that its user fixed may exceed it. None sets no limit.
        checkpoints_are: where the learner's checkpoints outlive it, in words; empty where they end with it.
        keeps_remains: members that have ended leave something to be removed (pods); podCleanup and ttl apply.
        ends_silent_members: whether a member that does not answer is ended by decision; else its surroundings do it.
        selector: label selector of the actors, for the scale subresource.
    """

    members: tuple[Member, ...] = ()
    learner: LearnerSample | None = None
    missing: str = ""
    checkpoint: CheckpointFacts = CheckpointFacts()
    admission: Admission | None = None
    max_actors: int | None = None
    cores: int | None = None
    checkpoints_are: str = "in the run folder"
    keeps_remains: bool = False
    ends_silent_members: bool = True
    selector: str = ""

    @property
    def keeps_checkpoints(self) -> bool:
        """Whether the learner's checkpoints outlive it, so that it may go on elsewhere."""
        return bool(self.checkpoints_are)

    def of(self, role: Role) -> tuple[Member, ...]:
        """Members of one role, in the order in which they are listed."""
        return tuple(member for member in self.members if member.role is role)

    def figure(self, name: str, default: Any = None) -> Any:
        """A field of the learner's latest document, for views; ``default`` where there is none yet."""
        value = self.learner.document.get(name) if self.learner is not None else None
        return default if value is None else value

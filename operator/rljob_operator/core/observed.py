"""What the controller sees of a job: the values that every substrate reports, and `decide` reads.

All times are Unix seconds. A substrate reports facts and takes no decisions: what a fact means for the job is decided once, in
`decide`, from these values and from the job's status.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote

from rljob.api.conditions import Reason
from rljob.api.learner_status import CheckpointStatement, LearnerStatus

from rljob_operator.core.member import Member, Role


class CheckpointState(StrEnum):
    """What is known about a job's checkpoints."""

    MISSING = "Missing"
    VERIFIED = "Verified"
    STORAGE_ERROR = "StorageError"
    GONE = "Gone"


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """The newest checkpoint, as its learner has read it back.

    ``state`` is about the newest attempt: after a failed one ``step``, ``time_seconds``, ``uri`` and ``digest`` are those of the
    newest checkpoint that did verify (step 0 and no uri: there is none).
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
        learner: what the learner said last, however long ago; None where it never said how many updates it has made.
        missing: why this reconciliation has no status of the learner, or nothing; for the message of ScalingActive.
        checkpoint: the newest checkpoint.
        admission: what the queue says; None where no queue is asked.
        max_actors: what the place allows besides maxReplicas (`rljob run --max-actors`), in every mode; None sets no limit.
        cores: of the machine. One actor a core is as many as a number that the controller or an autoscaler chooses may reach; one
            that its user fixed may exceed it. None sets no limit.
        checkpoints_are: where the learner's checkpoints outlive it, in words; empty where they end with it.
        keeps_remains: members that have ended leave something to be removed (pods), and ttlSecondsAfterFinished applies.
        ends_silent_members: whether a member that does not answer is ended by decision; else its surroundings do it.
        selector: label selector of the actors, for the scale subresource.
        untracked: trackers that take no points -> why; None where that is not known, or not yet.
    """

    members: tuple[Member, ...] = ()
    learner: LearnerStatus | None = None
    missing: str = ""
    checkpoint: CheckpointFacts = CheckpointFacts()
    admission: Admission | None = None
    max_actors: int | None = None
    cores: int | None = None
    checkpoints_are: str = "in the run folder"
    keeps_remains: bool = False
    ends_silent_members: bool = True
    selector: str = ""
    untracked: Mapping[str, str] | None = None

    @property
    def keeps_checkpoints(self) -> bool:
        """Whether the learner's checkpoints outlive it, so that it may go on elsewhere."""
        return bool(self.checkpoints_are)

    def of(self, role: Role) -> tuple[Member, ...]:
        """Members of one role, in the order in which they are listed."""
        return tuple(member for member in self.members if member.role is role)


_STATES = {"Valid": CheckpointState.VERIFIED, "Failed": CheckpointState.STORAGE_ERROR}


def checkpoint_facts(said: CheckpointStatement | None) -> CheckpointFacts:
    """The newest checkpoint by a learner's status or last words."""
    if said is None:
        return CheckpointFacts()
    state = _STATES.get(said.state, CheckpointState.MISSING)
    if not said.path:
        return CheckpointFacts(state, message=said.message)
    return CheckpointFacts(
        state=state,
        step=said.step,
        time_seconds=said.written_unix or 0.0,
        uri=said.path if "://" in said.path else f"file://{quote(said.path)}",
        digest=said.digest if not said.digest or ":" in said.digest else f"sha256:{said.digest}",
        message=said.message,
        requested_seconds=said.requested_unix,
    )

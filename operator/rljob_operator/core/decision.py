"""What should be done next for a job, and how it ends. `decide` returns it, every substrate carries it out."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rljob.api.status import RLJobStatus


class End(StrEnum):
    """How a run of the controller on a job ends: the job's own two ends, and the two of a session that can be resumed."""

    COMPLETE = "Complete"
    FAILED = "Failed"
    STOPPED = "Stopped"
    INTERRUPTED = "Interrupted"


@dataclass(frozen=True, slots=True)
class Outcome:
    """An end, its reason (a documented word) and a sentence with the numbers."""

    end: End
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Note:
    """Something that has happened, in a sentence; ``warning``: a person should look at it."""

    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """What should be true next. Applying the same decision twice changes nothing.

    Attributes:
        status: the job's new status.
        start: members to start; replaces an ended one of the same name.
        drain: members to ask to leave, killed after their role's time.
        replace: members that do not answer, to be ended at once; that is an end like any other, answered by a later decision.
        remove: ended members whose remains (pods) go.
        checkpoint_seconds: the learner is to write a checkpoint that answers the request of this time.
        changes: what the learner is to follow without a restart (`rljob.api.live.wanted`); None where none can be told.
        delete_job: the job itself goes (ttlSecondsAfterFinished).
        outcome: how it ends, from the moment it is known.
        finished: the end is decided and nothing that must leave is left.
        notes: events, recorded once.
        requeue_seconds: reconcile again after this long even if nothing changes; None where only a change matters.
    """

    status: RLJobStatus
    start: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    checkpoint_seconds: float | None = None
    changes: Mapping[str, Any] | None = None
    delete_job: bool = False
    outcome: Outcome | None = None
    finished: bool = False
    notes: tuple[Note, ...] = ()
    requeue_seconds: float | None = None

    @property
    def state(self) -> str:
        """The job's state in one word: the reason of Ready."""
        return self.status.state

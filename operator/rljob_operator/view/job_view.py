"""A job as its user sees it: what is stored, what the controller wrote, and what runs. Views are made of it, wherever it runs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from rljob.api.conditions import ConditionType, Reason
from rljob.api.learner_status import LearnerStatus
from rljob.api.status import CheckpointStatus, RLJobStatus

LOST = "Lost"
"""State of a run that has not ended and has no controller: that was killed, or its machine was restarted."""

STALE_SECONDS = 150.0
_WATCHED = ("Starting", "Restoring", "Running", "Degraded")
"""States in which a status is written every half minute, and every minute and a half where there is little to tell."""


@dataclass(frozen=True, slots=True)
class JobView:
    """One look at a job.

    Attributes:
        place: where it is, as its user's verbs name it: the folder of a run, or namespace/name.
        document: the stored object, the job as written; empty where it can't be read.
        status: the newest status; a new one where none was written yet.
        attended: whether a controller is there to act on it. Jobs of a cluster are taken to be attended: what speaks against it
            is in ``problem``.
        running: the members that run, as far as was looked.
        figures: what the learner says; without an answer what the job's status knows of it, or nothing.
        queue_fill_percent: of the learner's queue, as the job's status knows it; None where the learner itself was asked.
        servers: the status document of each inference server of its own that runs, by name.
        problem: what kept this look from showing all, or makes it doubtful; a sentence.
        resumed_by: the command that gives it a controller again; empty where there is none.
        further: columns that are shown of jobs of this kind alone, when there is room: heading -> value.
    """

    place: str
    document: Mapping[str, Any]
    status: RLJobStatus
    attended: bool
    running: Collection[str]
    figures: LearnerStatus = field(default_factory=LearnerStatus)
    queue_fill_percent: int | None = None
    servers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    problem: str = ""
    resumed_by: str = ""
    further: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The job's name, or the last part of its place where that is unknown."""
        metadata = self.document.get("metadata")
        return str(metadata.get("name", "")) if isinstance(metadata, dict) else self.place.rpartition("/")[2]

    @property
    def state(self) -> str:
        """The job's state in one word, as the controller says; or what it is without one."""
        if not self.attended and not self.status.finished and self.status.state != "SessionEnded":
            return LOST
        return self.status.state or "Starting"

    @property
    def checkpoint(self) -> CheckpointStatus | None:
        """The newest verified checkpoint; None where there is none, or where it went with the learner's pod."""
        valid = self.status.condition(ConditionType.CHECKPOINT_VALID)
        return self.status.checkpoint if valid is None or valid.reason != Reason.GONE else None

    def active_seconds(self, now: float) -> float:
        """How long the job has been at work until ``now`` (seconds since 1970): without suspensions, and without the time
        after its end or after whatever ended it unseen."""
        memory = self.status.controller
        if memory.active_since is None:
            return memory.spent_active_seconds
        if not self.attended and not self.running:
            return float(self.status.active_seconds)
        return memory.spent_active_seconds + max(0.0, now - memory.active_since)


def stale_seconds(status: RLJobStatus, now: float) -> float | None:
    """How old the status of a job at work is, where it should be newer; None where it is as new as it should be."""
    if status.finished or status.controller.active_since is None or status.state not in _WATCHED:
        return None
    old = now - (status.progress.last_update_time or now)
    return old if old > STALE_SECONDS else None

"""What the controller sees and what it wants: the values that `decide` reads and returns, shared by every substrate."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any


class Role(StrEnum):
    """The roles of a job, in the order in which they start."""

    REPLAY = "replay"
    LEARNER = "learner"
    INFERENCE = "inference"
    ACTOR = "actor"
    EVALUATOR = "evaluator"


class Phase(StrEnum):
    """Where one member (a process, a pod) is in its life."""

    ABSENT = "Absent"
    STARTING = "Starting"
    READY = "Ready"
    DRAINING = "Draining"
    EXITED = "Exited"


class State(StrEnum):
    """The state of the job; the last four are final."""

    STARTING = "Starting"
    RUNNING = "Running"
    FINISHING = "Finishing"
    COMPLETE = "Complete"
    STOPPED = "Stopped"
    INTERRUPTED = "Interrupted"
    FAILED = "Failed"


FINAL_STATES = frozenset({State.COMPLETE, State.STOPPED, State.INTERRUPTED, State.FAILED})

EXIT_CONFIGURATION = 78
"""A role's exit code for a configuration that no restart can mend (sysexits EX_CONFIG)."""


@dataclass(frozen=True, slots=True)
class Member:
    """One named process or pod of a job as last seen.

    ``exits`` counts how often it ended without being asked to; ``quick_exits`` how often in a row it did so before it had
    been ready for ten seconds. ``exit_code`` and ``last_words`` belong to the latest such end. Times are seconds on the
    controller's clock.
    """

    name: str
    role: Role
    phase: Phase = Phase.ABSENT
    since_seconds: float = 0.0
    exits: int = 0
    quick_exits: int = 0
    exit_code: int | None = None
    last_words: str = ""


@dataclass(frozen=True, slots=True)
class LearnerSample:
    """The learner's `/status` document and when it was taken (seconds on the controller's clock)."""

    status: dict[str, Any]
    taken_seconds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ends: a final state, its reason (one of the documented CamelCase words) and a sentence with the numbers."""

    state: State
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The controller's memory of a job. Everything `decide` has to remember is here, so a restarted controller goes on alike.

    ``outcome`` is a latch: once set it never changes. ``last_advance`` is (learner updates, when they were first seen).
    """

    outcome: Outcome | None = None
    started_seconds: float = 0.0
    last_advance: tuple[int, float] = (-1, 0.0)


@dataclass(frozen=True, slots=True)
class Observation:
    """One level-triggered look at a job."""

    status: JobStatus
    members: tuple[Member, ...]
    learner: LearnerSample | None = None
    interrupted: bool = False
    max_seconds: float | None = None

    def of(self, role: Role) -> tuple[Member, ...]:
        """Members of one role, in name order."""
        return tuple(member for member in self.members if member.role is role)

    def figure(self, name: str, default: Any = None) -> Any:
        """A field of the learner's latest status, or ``default`` where there is none yet."""
        if self.learner is None:
            return default
        value = self.learner.status.get(name)
        return default if value is None else value


@dataclass(frozen=True, slots=True)
class Decision:
    """What should be true next: which members to start and to drain, and the job's state and memory."""

    state: State
    status: JobStatus
    start: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def finished(self) -> bool:
        """Whether the job is over and nothing of it is left to stop."""
        return self.state in FINAL_STATES

    def with_start(self, names: tuple[str, ...]) -> Decision:
        """The same decision that also starts ``names``."""
        return replace(self, start=self.start + names)

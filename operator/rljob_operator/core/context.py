"""What every rule is given: the job, one observation of it, the time, and the status as the rules before have left it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from rljob.api import RLJobSpec
from rljob.api.conditions import Reason
from rljob.api.controller_memory import ControllerMemory, MemberMemory, OutcomeMemory
from rljob.api.status import RLJobStatus
from rljob.api.status_model import MAX_MESSAGE, stamp

from rljob_operator.core.desired import DesiredState, Session
from rljob_operator.core.member import Member, Phase, Role, number
from rljob_operator.core.observed import Observation

_ROLES, _PHASES = tuple(Role), tuple(Phase)


class Mode(StrEnum):
    """What the controller is about with a job; the first that applies, in this order."""

    FINISHED = "Finished"
    """Complete or Failed: nothing is ever started again."""
    FINISHING = "Finishing"
    """The end is decided; members leave."""
    SESSION_ENDING = "SessionEnding"
    """`rljob run` ends, or a cluster's job is stopped; members leave and the job can be resumed."""
    ACCEPTING = "Accepting"
    """The spec can't be run and nothing runs."""
    SUSPENDING = "Suspending"
    """The user or the queue wants nothing to run, or the operator leaves, or the spec was changed while the job was being
    suspended, so that all has to start anew; members leave, or none is left."""
    RUNNING = "Running"
    """Members are started and kept, and the rules that may end the job are asked."""


@dataclass(frozen=True, slots=True)
class ReconcileContext:
    """One reconciliation of a job. Rules return one with a newer status, or a part of the decision."""

    desired: DesiredState
    observed: Observation
    session: Session | None
    status: RLJobStatus
    groups: Mapping[Role, Mapping[Phase, list[Member]]]
    now: float
    """Unix seconds, as exactly as a status holds them."""

    @classmethod
    def at(
        cls,
        desired: DesiredState,
        status: RLJobStatus,
        observed: Observation,
        now_seconds: float,
        session: Session | None = None,
    ) -> "ReconcileContext":
        """The context before any rule."""
        groups: dict[Role, dict[Phase, list[Member]]] = {role: {phase: [] for phase in _PHASES} for role in _ROLES}
        role, phase, group = Role.REPLAY, Phase.ABSENT, groups[Role.REPLAY][Phase.ABSENT]
        for (
            member
        ) in observed.members:  # neighbours are mostly equal, and hashing an enum is slow: 500 actors, each time
            if member.phase is not phase or member.role is not role:
                role, phase = member.role, member.phase
                group = groups[role][phase]
            group.append(member)
        return cls(desired, observed, session, status, groups, stamp(now_seconds))

    @property
    def spec(self) -> RLJobSpec:
        """What is wanted."""
        return self.desired.job.spec

    @property
    def memory(self) -> ControllerMemory:
        """What the controller remembers."""
        return self.status.controller

    def with_status(self, **fields: Any) -> "ReconcileContext":
        """The context with some fields of the status replaced."""
        return replace(self, status=self.status.model_copy(update=fields))

    def with_memory(self, **fields: Any) -> "ReconcileContext":
        """The context with some fields of the controller's memory replaced."""
        return self.with_status(controller=self.memory.model_copy(update=fields))

    @property
    def shards(self) -> int:
        """Replay shards there should be."""
        return self.spec.replay.shards if self.spec.replay is not None else 0

    @property
    def inference_servers(self) -> int:
        """Inference servers of their own there should be; none where actors or the learner compute the actions."""
        return self.spec.inference.replicas if self.spec.actors.inference == "Central" else 0

    def of(self, role: Role, *phases: Phase) -> list[Member]:
        """Members of a role in any of ``phases`` (in all, without any)."""
        groups = self.groups[role]
        return [member for phase in phases or _PHASES for member in groups[phase]]

    def alive(self, *roles: Role) -> list[Member]:
        """Members of ``roles`` (of all, without any) that run or are about to."""
        found: list[Member] = []
        for role in roles or _ROLES:
            groups = self.groups[role]
            found += groups[Phase.STARTING]
            found += groups[Phase.READY]
            found += groups[Phase.DRAINING]
        return found

    def failed(self, *roles: Role) -> list[Member]:
        """Members of ``roles`` (of all, without any) that have ended without having been asked to."""
        return [m for role in roles or _ROLES for m in self.groups[role][Phase.EXITED] if not m.asked]

    def count(self, role: Role, phase: Phase) -> int:
        """How many members of a role are in a phase."""
        return len(self.groups[role][phase])

    def is_wanted(self, member: Member) -> bool:
        """Whether the spec has a place for it. For actors only their number counts, which `rules.actors` knows."""
        if member.role is Role.REPLAY:
            return number(member.name) < self.shards
        if member.role is Role.LEARNER:
            return member.name in self.spec.learner.members
        if member.role is Role.INFERENCE:
            return number(member.name) < self.inference_servers
        return self.spec.evaluator.enabled if member.role is Role.EVALUATOR else True

    def ready(self, role: Role) -> int:
        """How many of the members of a role that the spec wants serve."""
        found = self.groups[role][Phase.READY]
        return len(found) if role is Role.ACTOR else sum(self.is_wanted(member) for member in found)

    def learner_ready(self) -> bool:
        """Whether the learner serves, in all its processes."""
        return self.ready(Role.LEARNER) >= self.spec.learner.processes

    def needed_actors(self) -> int:
        """The fewest ready actors with which the job counts as up."""
        return min(self.spec.autoscaling.min_replicas, self.allowed_actors())

    def allowed_actors(self) -> int:
        """The wanted number of actors, or as many of them as the queue has admitted."""
        return min([self.status.autoscaling.desired_replicas, *self.quota()])

    def quota(self) -> list[int]:
        """The actors that the job's queue has admitted, where it has one that says so."""
        admission = self.observed.admission
        return [] if admission is None or admission.max_actors is None else [admission.max_actors]

    def needed_of(self, role: Role) -> int:
        """The fewest ready members of a role with which the job counts as up."""
        numbers = {Role.REPLAY: self.shards, Role.LEARNER: self.spec.learner.processes}
        numbers[Role.INFERENCE] = self.inference_servers
        return self.needed_actors() if role is Role.ACTOR else numbers.get(role, 0)

    def outdated(self) -> bool:
        """Whether members run that were started with other values of fields that only a start can change."""
        known = self.memory.started_with
        return known not in ("", self.desired.read_at_start) and bool(self.alive())

    def since(self, moment: float | None) -> float:
        """Seconds since ``moment``; 0 where there is none or the clock was set back behind it."""
        return 0.0 if moment is None else max(0.0, self.now - moment)

    def watched_for(self, moment: float | None) -> float:
        """Seconds since ``moment`` in which the controller watched without a gap, up to now."""
        return 0.0 if moment is None else self.since(max(moment, self.memory.watched_since or 0.0))

    def active_seconds(self) -> float:
        """Time that the job was not suspended and did not wait for a place before it was up, up to now."""
        waits = self.memory.placed is None and self.memory.started is None
        return self.memory.spent_active_seconds + (0.0 if waits else self.since(self.memory.active_since))

    def remembered(self) -> dict[str, MemberMemory]:
        """What is remembered of members that ended unasked, by name."""
        return {each.name: each for each in self.memory.members}


def mode(context: ReconcileContext) -> Mode:
    """What the controller is about with this job."""
    status, admission = context.status, context.observed.admission
    if status.finished:
        return Mode.FINISHED
    if status.controller.outcome is not None:
        return Mode.FINISHING
    if session_end(context) is not None:
        return Mode.SESSION_ENDING
    no_quota = admission is not None and not admission.admitted
    if context.desired.blocked and not (no_quota and context.alive()):
        return Mode.ACCEPTING  # what runs is left alone: no spec is known by which to judge it
    if context.desired.suspends or no_quota or context.outdated():
        return Mode.SUSPENDING
    return Mode.RUNNING


def session_end(context: ReconcileContext) -> tuple[str, str] | None:
    """(reason, message) where the session is over, None where it goes on or there is none."""
    session = context.session
    if session is None:
        return None
    if session.interrupted:
        return "UserRequested", "stopped by its user"
    if session.max_seconds is not None and session.elapsed_seconds >= session.max_seconds:
        return "MaxSecondsReached", f"the time limit of this run, {session.max_seconds:g} seconds, is over"
    return None


def bounded(text: str, longest: int = MAX_MESSAGE) -> str:
    """``text`` cut to what a status field may hold."""
    return text if len(text) <= longest else text[: longest - 3] + "..."


def some(names: Iterable[str], most: int = 3) -> str:
    """A few names and how many more there are: ``actor-1, actor-2, actor-3 and 4 more``."""
    listed = list(names)
    rest = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {rest} more" if rest > 0 else "")


_KILLED = (-9, 137)


def complete(context: ReconcileContext, reason: Reason, message: str) -> OutcomeMemory:
    """The job has succeeded."""
    return OutcomeMemory.model_construct(
        state="Complete", reason=reason.value, message=bounded(message), time=context.now
    )


def failed(context: ReconcileContext, reason: Reason, message: str) -> OutcomeMemory:
    """The job has failed."""
    return OutcomeMemory.model_construct(
        state="Failed", reason=reason.value, message=bounded(message), time=context.now
    )


def with_what_was_lost(context: ReconcileContext) -> ReconcileContext:
    """The outcome says so where the learner was killed before it had written its last checkpoint."""
    outcome = context.memory.outcome
    killed = any(member.asked and member.exit_code in _KILLED for member in context.of(Role.LEARNER))
    if outcome is None or not killed:
        return context
    lost = "the learner was killed while it saved: progress after its newest checkpoint is lost"
    return context.with_memory(outcome=outcome.model_copy(update={"message": bounded(f"{outcome.message}; {lost}")}))

"""One reconciliation of a job, as a value: what was found, what should happen, and what must be written first.

Pure, and the same for every substrate. A substrate's loop gathers the arguments, calls `turn`, stores the status as ``write``
says, carries the decision out, and calls again when ``decision.requeue_seconds`` are over or something has changed.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from rljob.api.status import AutoscalingStatus, ProgressStatus, RLJobStatus

from rljob_operator.core.decide import decide
from rljob_operator.core.decision import Decision
from rljob_operator.core.desired import DesiredState, Session
from rljob_operator.core.member import Phase
from rljob_operator.core.observed import Observation

_SEEN: Final = frozenset({"replay", "learner", "inference", "actors", "following", "fork", "conditions"})
"""Parts of a status (`_durable`) that are what the last reconciliation found, and nothing besides."""


class StatusWrite(StrEnum):
    """When the new status has to be stored."""

    BEFORE_ACTING = "BeforeActing"
    """At once, and nothing is done until it is: an act replaces the very evidence that the status was made from, and a
    controller that forgets what it has counted counts it again. Also where a job becomes ready, for which clients wait."""
    SOON = "Soon"
    """It differs in what is seen, such as how many actors are ready and what conditions say, which the next one would find out
    again; also where members start that were not there before, since that takes no evidence away. Where writing costs something,
    a moment of waiting gathers what five hundred actors bring one by one, or a job's waves."""
    WHEN_DUE = "WhenDue"
    """It differs in progress alone, which the next reconciliation would find out again."""
    SELDOM = "Seldom"
    """It differs in nothing but the time that has passed: a job waits, or nothing is heard of it, and it was reconciled."""
    NONE = "None"
    """It is the one that is stored."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One reconciliation: what it was given, the decision, and when its status has to be stored. Views show it."""

    desired: DesiredState
    observed: Observation
    session: Session | None
    decision: Decision
    write: StatusWrite

    @property
    def elapsed_seconds(self) -> float:
        """Time since the session began; 0 without one."""
        return self.session.elapsed_seconds if self.session is not None else 0.0


def turn(
    desired: DesiredState,
    status: RLJobStatus,
    observed: Observation,
    now_seconds: float,
    session: Session | None = None,
) -> Turn:
    """Decide, and say when the status must be stored. The arguments are those of `decide`."""
    decision = decide(desired, status, observed, now_seconds, session)
    return Turn(desired, observed, session, decision, _write(status, observed, decision))


def _write(before: RLJobStatus, observed: Observation, decision: Decision) -> StatusWrite:
    if _acts(observed, decision):
        return StatusWrite.BEFORE_ACTING
    if decision.status is before:
        return StatusWrite.NONE
    was, becomes = _durable(before), _durable(decision.status)
    differs = {name for name in becomes if was[name] != becomes[name]}
    if differs:
        becomes_ready = decision.status.is_true("Ready") and not before.is_true("Ready")
        return StatusWrite.BEFORE_ACTING if becomes_ready or not differs <= _SEEN else StatusWrite.SOON
    return StatusWrite.SELDOM if _without_time(before) == _without_time(decision.status) else StatusWrite.WHEN_DUE


def _acts(observed: Observation, decision: Decision) -> bool:
    """Whether something is to be done that takes evidence away: an ended member is replaced, one is asked to leave.

    Notes do not count: they follow from what differs in the status.
    """
    there = {m.name for m in observed.members if m.phase is not Phase.ABSENT} if decision.start else set()
    return bool(
        any(name in there for name in decision.start)
        or decision.drain
        or decision.replace
        or decision.remove
        or decision.finished
        or decision.delete_job
    )


def _durable(status: RLJobStatus) -> dict[str, Any]:
    """The fields of a status that a later controller could not find out by itself.

    Left out: progress, what is remembered for its estimate and of the learner's latest advance, the figures behind the last
    decision on actors, the moments that trends are judged by, the numbers that sentences are made with, and since when members
    have places and are up.
    """
    memory = status.controller
    unset = dict.fromkeys(("advance", "training_return", "value_loss", "placed", "started"))
    memory = memory.model_copy(update={**unset, "curve": [], "active_since": memory.active_since is not None})
    autoscaling = AutoscalingStatus.model_construct(
        desired_replicas=status.autoscaling.desired_replicas, last_scale_time=status.autoscaling.last_scale_time
    )
    return {
        **dict(status),
        "progress": ProgressStatus(),
        "active_seconds": 0,
        "autoscaling": autoscaling,
        "controller": memory,
        "conditions": [(c.type, c.status, c.reason, c.observed_generation) for c in status.conditions],
    }


def _without_time(status: RLJobStatus) -> RLJobStatus:
    """The status without the time that has passed, and without when that was noted."""
    progress = status.progress.model_copy(update={"last_update_time": None})
    return status.model_copy(update={"progress": progress, "active_seconds": 0})

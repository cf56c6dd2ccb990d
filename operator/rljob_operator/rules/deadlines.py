"""When a job ends because of time, or because its user asked."""

from __future__ import annotations

from rljob.api import RLJob

from rljob_operator.model import Observation, Outcome, Phase, Role, State


def interrupted(job: RLJob, observation: Observation, now_seconds: float) -> Outcome | None:
    """The user pressed Ctrl-C or sent SIGTERM."""
    if observation.interrupted:
        return Outcome(State.INTERRUPTED, "UserRequested", "stopped by its user")
    return None


def max_seconds(job: RLJob, observation: Observation, now_seconds: float) -> Outcome | None:
    """The bound that the user set for this run is over; the job is stopped in good order and can be resumed."""
    limit = observation.max_seconds
    if limit is None or now_seconds - observation.status.started_seconds < limit:
        return None
    return Outcome(State.STOPPED, "MaxSecondsReached", f"the bound of {limit:g} seconds for this run is over")


def active_deadline(job: RLJob, observation: Observation, now_seconds: float) -> Outcome | None:
    """``activeDeadlineSeconds`` is over."""
    limit = job.spec.active_deadline_seconds
    if limit is None or now_seconds - observation.status.started_seconds < limit:
        return None
    return Outcome(State.FAILED, "DeadlineExceeded", f"not finished after activeDeadlineSeconds = {limit}")


def startup_deadline(job: RLJob, observation: Observation, now_seconds: float) -> Outcome | None:
    """Not every core member was ready within ``startupDeadlineSeconds``."""
    limit = job.spec.startup_deadline_seconds
    if observation.status.last_advance[0] >= 0 or limit is None:
        return None
    if now_seconds - observation.status.started_seconds < limit:
        return None
    waiting = [m.name for m in observation.members if m.phase is not Phase.READY and m.role is not Role.EVALUATOR]
    return Outcome(
        State.FAILED,
        "StartupDeadlineExceeded",
        f"after {limit} seconds not ready: {', '.join(waiting) or 'the learner has no status'}",
    )


def progress_deadline(job: RLJob, observation: Observation, now_seconds: float) -> Outcome | None:
    """The learner has not advanced for ``progressDeadlineSeconds``."""
    limit = job.spec.progress_deadline_seconds
    updates, since = observation.status.last_advance
    if limit is None or updates < 0 or now_seconds - since < limit:
        return None
    return Outcome(
        State.FAILED, "ProgressDeadlineExceeded", f"the learner has stood at update {updates:,} for {limit} seconds"
    )

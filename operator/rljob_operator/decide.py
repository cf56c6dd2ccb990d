"""`decide`: from one look at a job to what should happen next. Pure: no I/O, no clock, no randomness.

The rules are tried in the order in which they stand here. An ending rule answers an `Outcome` or nothing; the first outcome
is latched in the status. Without an outcome the lifecycle rules say what to start, with one they say what to drain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rljob.api import RLJob

from rljob_operator.model import Decision, JobStatus, Observation, Outcome, State
from rljob_operator.rules import deadlines, failures, lifecycle, success

EndingRule = Callable[[RLJob, Observation, float], Outcome | None]

ENDING_RULES: tuple[EndingRule, ...] = (
    failures.configuration_refused,
    success.target_return,
    success.raw_frames,
    failures.learner_gave_up,
    success.learner_finished,
    deadlines.interrupted,
    deadlines.max_seconds,
    deadlines.active_deadline,
    failures.backoff_limit,
    failures.actors_crash_looping,
    deadlines.startup_deadline,
    deadlines.progress_deadline,
)


def decide(job: RLJob, observation: Observation, now_seconds: float) -> Decision:
    """What should happen next for ``job``. The same arguments always give the same decision."""
    status = _remember(observation, now_seconds)
    observation = replace(observation, status=status)
    if status.outcome is None:
        for rule in ENDING_RULES:
            outcome = rule(job, observation, now_seconds)
            if outcome is not None:
                status = replace(status, outcome=outcome)
                break
    if status.outcome is None:
        return Decision(
            state=lifecycle.state(job, observation),
            status=status,
            start=lifecycle.to_start(job, observation, now_seconds),
        )
    drain = lifecycle.to_drain(observation)
    left = lifecycle.still_there(observation)
    return Decision(state=State.FINISHING if left else status.outcome.state, status=status, drain=drain)


def _remember(observation: Observation, now_seconds: float) -> JobStatus:
    """The status with the learner's advance noted, so that a stall can be dated."""
    status = observation.status
    updates = int(observation.figure("updates", -1))
    if updates > status.last_advance[0]:
        return replace(status, last_advance=(updates, now_seconds))
    return status

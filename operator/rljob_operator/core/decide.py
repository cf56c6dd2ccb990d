"""`decide`: from one look at a job to what should happen next. Pure: no I/O, no clock, no randomness.

A look is led through small rules, each of which does one thing and is in the file that its name says. Which rules are asked
depends on the mode (`look.Mode`): a job that is being suspended is not judged, a finished one is not touched. What a rule has
to remember it writes into the status; there is no other memory, so a controller may be replaced between any two looks.
"""

from __future__ import annotations

from collections.abc import Callable

from rljob.api.controller_memory import OutcomeMemory
from rljob.api.status import RLJobStatus

from rljob_operator.core.conditions import job as about_job
from rljob_operator.core.conditions import roles as about_roles
from rljob_operator.core.conditions.update import Said, merged
from rljob_operator.core.context import Look, Mode, mode, session_end
from rljob_operator.core.decision import Decision, End, Outcome
from rljob_operator.core.desired import ClockReading, DesiredState, Session
from rljob_operator.core.observed import Observation
from rljob_operator.core.rules import (
    active_time,
    actors,
    checkpoints,
    crash_loops,
    deadlines,
    facts,
    failures,
    hangs,
    notes,
    places,
    progress,
    success,
    suspension,
    timers,
)
from rljob_operator.core.rules import clock_jumps as leaps
from rljob_operator.core.rules import start_and_drain as lifecycle

Rule = Callable[[Look], Look]
EndingRule = Callable[[Look], OutcomeMemory | None]
ConditionRule = Callable[[Look, Mode], Said | None]

RUNNING_RULES: tuple[Rule, ...] = (
    leaps.gap,
    suspension.note_start,
    active_time.start,
    failures.account,
    failures.forgive,
    progress.advance,
    checkpoints.newest,
    checkpoints.request,
    success.count_evaluations,
    places.recall,
    actors.wanted,
    places.dismiss,
    active_time.roles_up,
    progress.report,
)

SUSPENDING_RULES: tuple[Rule, ...] = (
    failures.account,
    progress.advance,
    checkpoints.newest,
    checkpoints.request,
    suspension.advance,
)

LEAVING_RULES: tuple[Rule, ...] = (progress.advance, checkpoints.newest)
"""For a session that ends, and for a job whose end is decided."""

ENDING_RULES: tuple[EndingRule, ...] = (
    failures.policy_rule,
    success.target_return,
    success.raw_frames,
    success.learner_finished,
    success.plateau,
    deadlines.active_deadline,
    failures.backoff_limit,
    crash_loops.actors_crash_looping,
    deadlines.startup_deadline,
    deadlines.progress_deadline,
)
"""In this order; the first that answers decides how the job ends, for good."""

CONDITION_RULES: tuple[ConditionRule, ...] = (
    about_job.accepted,
    about_job.admitted,
    about_roles.replay,
    about_roles.learner,
    about_roles.inference,
    about_roles.actors,
    about_job.ready,
    about_job.progressing,
    about_job.scaling_active,
    about_job.scaling_limited,
    about_job.checkpoint_valid,
    about_job.suspended,
    about_job.failure_target,
    about_job.end,
)


def decide(
    desired: DesiredState,
    status: RLJobStatus,
    observed: Observation,
    clock: ClockReading,
    session: Session | None = None,
) -> Decision:
    """What should happen next for a job. The same arguments always give the same decision.

    Args:
        desired: the stored object.
        status: what the controller wrote last; `RLJobStatus()` for a new job.
        observed: what its substrate finds now.
        clock: the time.
        session: of a controller that ends with its terminal; None on a cluster.
    """
    look = Look.at(desired, status, observed, clock, session)
    now = mode(look)
    if now is Mode.FINISHED:
        return _after_the_end(look)
    look = _led(leaps.leap(look), now)
    if now is Mode.RUNNING:
        outcome = next((found for rule in ENDING_RULES if (found := rule(look)) is not None), None)
        if outcome is not None:
            look, now = look.remember(outcome=outcome), Mode.FINISHING
    if now is Mode.FINISHING and not lifecycle.must_leave(look):
        look, now = active_time.stop(look).tell(completion_time=look.now), Mode.FINISHED
    if now in (Mode.SUSPENDING, Mode.SESSION_ENDING) and not look.alive():
        look = active_time.stop(look)
    look = facts.spec(facts.members(look), desired.generation)
    said = (rule(look, now) for rule in CONDITION_RULES)
    look = look.tell(conditions=merged(look.status.conditions, said, desired.generation, look.now))
    start = lifecycle.to_start(look) if now is Mode.RUNNING else ()
    return Decision(
        status=_as_before_if_equal(status, look.status),
        start=start,
        drain=lifecycle.to_drain(look, now),
        replace=hangs.to_replace(look, now),
        remove=tuple(name for name in lifecycle.to_remove(look, now) if name not in start),  # starting it replaces it
        checkpoint_seconds=checkpoints.wanted_seconds(look) if look.learner_ready() else None,
        outcome=_outcome(look, now),
        finished=now is Mode.FINISHED or (now is Mode.SESSION_ENDING and not look.alive()),
        notes=notes.between(status, look.status),
        requeue_seconds=timers.next_look_seconds(look, now),
    )


def _led(look: Look, now: Mode) -> Look:
    """The look after the rules of its mode."""
    rules: tuple[Rule, ...] = ()
    if now is Mode.RUNNING:
        rules = RUNNING_RULES
    elif now is Mode.SUSPENDING:
        rules = SUSPENDING_RULES
    elif now in (Mode.FINISHING, Mode.SESSION_ENDING):
        rules = LEAVING_RULES
    for rule in rules:
        look = rule(look)
    return look


def _after_the_end(look: Look) -> Decision:
    """A job that is Complete or Failed: its status never changes again, nothing starts, and what is left goes in its time."""
    left = lifecycle.ttl_seconds_left(look)
    return Decision(
        status=look.status,
        drain=lifecycle.to_drain(look, Mode.FINISHED),
        remove=lifecycle.to_remove(look, Mode.FINISHED),
        delete_job=left == 0.0,
        outcome=_outcome(look, Mode.FINISHED),
        finished=True,
        requeue_seconds=timers.next_look_seconds(look, Mode.FINISHED),
    )


def _outcome(look: Look, now: Mode) -> Outcome | None:
    outcome = look.memory.outcome
    if outcome is not None:
        return Outcome(End(outcome.state), outcome.reason, outcome.message)
    end = session_end(look) if now is Mode.SESSION_ENDING else None
    if end is None:
        return None
    return Outcome(End.INTERRUPTED if end[0] == "UserRequested" else End.STOPPED, *end)


def _as_before_if_equal(before: RLJobStatus, after: RLJobStatus) -> RLJobStatus:
    """The very object where nothing changed, so that nobody writes what is there already."""
    return before if after is before or after == before else after

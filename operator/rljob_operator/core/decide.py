"""`decide`: from what was found of a job to what should happen next. Pure: no I/O, no clock, no randomness.

A `ReconcileContext` is led through small rules; each does one thing and is in the file that its name says. Which rules are asked
depends on the mode (`context.Mode`): a job that is being suspended is not judged, a finished one is not touched. What a rule has
to remember it writes into the status; there is no other memory, so a controller may be replaced between any two
reconciliations.
"""

from collections.abc import Callable, Mapping

from rljob.api.controller_memory import OutcomeMemory
from rljob.api.live import wanted
from rljob.api.status import RLJobStatus

from rljob_operator.core.conditions import job as about_job, roles as about_roles
from rljob_operator.core.conditions.update import ConditionUpdate, merged
from rljob_operator.core.context import Mode, ReconcileContext, mode, session_end, with_what_was_lost
from rljob_operator.core.decision import Decision, End, Outcome
from rljob_operator.core.desired import DesiredState, Session
from rljob_operator.core.member import Role
from rljob_operator.core.observed import Observation
from rljob_operator.core.rules import (
    actors,
    checkpoints,
    clocks,
    facts,
    failures,
    hangs,
    places,
    progress,
    start_and_drain as lifecycle,
    success,
    suspension,
    waiting,
)

Rule = Callable[[ReconcileContext], ReconcileContext]
EndingRule = Callable[[ReconcileContext], OutcomeMemory | None]
ConditionRule = Callable[[ReconcileContext, Mode], ConditionUpdate | None]

RUNNING_RULES: tuple[Rule, ...] = (
    clocks.gap,
    suspension.note_start,
    suspension.keep_rendering,
    clocks.start,
    failures.account,
    failures.forgive,
    progress.advance,
    checkpoints.newest,
    checkpoints.request,
    success.count_evaluations,
    success.follow_trends,
    actors.wanted,
    places.dismiss,
    waiting.note,
    clocks.roles_up,
    progress.report,
)

SUSPENDING_RULES: tuple[Rule, ...] = (
    failures.account,
    progress.advance,
    checkpoints.newest,
    checkpoints.request,
    actors.asked_for,
    suspension.advance,
)

LEAVING_RULES: tuple[Rule, ...] = (progress.advance, checkpoints.newest)
"""For a session that ends, and for a job whose end is decided."""

RULES: Mapping[Mode, tuple[Rule, ...]] = {
    Mode.RUNNING: RUNNING_RULES,
    Mode.SUSPENDING: SUSPENDING_RULES,
    Mode.FINISHING: LEAVING_RULES,
    Mode.SESSION_ENDING: LEAVING_RULES,
}

ENDING_RULES: tuple[EndingRule, ...] = (
    failures.policy_rule,
    success.target_return,
    success.metric,
    success.raw_frames,
    success.plateau,
    success.training_return,
    success.value_loss,
    clocks.active_deadline,
    failures.backoff_limit,
    places.actors_crash_looping,
    clocks.startup_deadline,
    clocks.progress_deadline,
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
    about_job.tracked,
    about_job.suspended,
    about_job.failure_target,
    about_job.end,
    about_job.stalled,
)


def decide(
    desired: DesiredState,
    status: RLJobStatus,
    observed: Observation,
    now_seconds: float,
    session: Session | None = None,
) -> Decision:
    """What should happen next for a job. The same arguments always give the same decision.

    Args:
        desired: the stored object.
        status: what the controller wrote last; `RLJobStatus()` for a new job.
        observed: what its substrate finds now.
        now_seconds: Unix seconds.
        session: of a controller that ends with its terminal; None on a cluster.
    """
    context = ReconcileContext.at(desired, status, observed, now_seconds, session)
    now = mode(context)
    if now is Mode.FINISHED:
        return _after_the_end(context)
    for rule in RULES.get(now, ()):
        context = rule(context)
    if now is Mode.RUNNING:
        outcome = next((found for ends in ENDING_RULES if (found := ends(context)) is not None), None)
        if outcome is not None:
            context, now = context.with_memory(outcome=outcome), Mode.FINISHING
    if now is Mode.FINISHING and not context.alive():
        context = with_what_was_lost(clocks.stop(context))
        context, now = context.with_status(completion_time=context.now), Mode.FINISHED
    if now in (Mode.SUSPENDING, Mode.SESSION_ENDING) and not context.alive():
        context = clocks.stop(context)
    context = facts.spec(facts.members(context), desired.generation)
    updates = (says(context, now) for says in CONDITION_RULES)
    context = context.with_status(
        conditions=merged(context.status.conditions, updates, desired.generation, context.now)
    )
    start = lifecycle.to_start(context) if now is Mode.RUNNING else ()
    refused = any(member.waiting is not None for member in observed.of(Role.LEARNER))
    if not refused and any(Role.of(name) is Role.LEARNER for name in start):
        # One that goes back to a checkpoint takes another epoch by itself, and says so. While its pod is refused, the epoch
        # that it was given stays: a status that changed each time would be written each time.
        epoch = observed.learner.epoch if observed.learner is not None else 0
        context = context.with_memory(learner_epoch=max(context.memory.learner_epoch, epoch) + 1)
    return Decision(
        status=_as_before_if_equal(status, context.status),
        start=start,
        drain=lifecycle.to_drain(context, now),
        replace=hangs.to_replace(context, now),
        remove=tuple(
            name for name in lifecycle.to_remove(context, now) if name not in start
        ),  # starting it replaces it
        checkpoint_seconds=checkpoints.wanted_seconds(context) if context.learner_ready() else None,
        changes=wanted(context.spec) if context.learner_ready() else None,
        outcome=_outcome(context, now),
        finished=now is Mode.FINISHED or (now is Mode.SESSION_ENDING and not context.alive()),
        notes=facts.notes_between(status, context.status),
        requeue_seconds=clocks.next_look_seconds(context, now),
    )


def _after_the_end(context: ReconcileContext) -> Decision:
    """A job that is Complete or Failed. Its status changes no more, except that it notes later generations, as clients may wait
    for them, and says that they have no effect; nothing starts, and what is left goes in its time."""
    left, generation, before = lifecycle.ttl_seconds_left(context), context.desired.generation, context.status
    conditions = merged(before.conditions, [about_job.edited_after_the_end(context)], generation, context.now)
    after = context.with_status(observed_generation=generation, conditions=conditions).status
    return Decision(
        status=_as_before_if_equal(before, after),
        drain=lifecycle.to_drain(context, Mode.FINISHED),
        remove=lifecycle.to_remove(context, Mode.FINISHED),
        delete_job=left == 0.0,
        outcome=_outcome(context, Mode.FINISHED),
        finished=True,
        notes=facts.notes_between(before, after),
        requeue_seconds=clocks.next_look_seconds(context, Mode.FINISHED),
    )


def _outcome(context: ReconcileContext, now: Mode) -> Outcome | None:
    outcome = context.memory.outcome
    if outcome is not None:
        return Outcome(End(outcome.state), outcome.reason, outcome.message)
    end = session_end(context) if now is Mode.SESSION_ENDING else None
    return None if end is None else Outcome(End.INTERRUPTED if end[0] == "UserRequested" else End.STOPPED, *end)


def _as_before_if_equal(before: RLJobStatus, after: RLJobStatus) -> RLJobStatus:
    """The very object where nothing changed, so that an equal status is not written again."""
    return before if after is before or after == before else after

"""The job's clocks: when it started, how long it was active, since when its roles come up, and since when it is watched."""

from rljob.api.controller_memory import AdvanceMemory
from rljob.api.status_model import stamp

from rljob_operator.core.context import ReconcileContext
from rljob_operator.core.member import Role
from rljob_operator.core.rules import progress

LONGEST_GAP_SECONDS = 120.0
"""A job that runs is reconciled every half minute, and what was seen is written every minute and a half at the latest; after a
longer time without a write it was not watched."""


def gap(context: ReconcileContext) -> ReconcileContext:
    """Begin the windows of a running job anew after a time in which it was not watched, since what they wait for was not seen.

    The controller was away, or the clock was set on, or the machine slept. On one machine that time was not active.
    """
    written, since = context.status.progress.last_update_time, context.memory.active_since
    if since is None or written is None or context.now - written <= LONGEST_GAP_SECONDS:
        return context
    context = context.with_memory(watched_since=context.now)
    if context.session is None:
        return context  # its pods ran, and cost, meanwhile
    return context.with_memory(active_since=stamp(since + context.now - written))


def start(context: ReconcileContext) -> ReconcileContext:
    """Start the clocks of a job that runs: the first time, after a suspension, and after a session of `rljob run` that ended."""
    context = _after_a_crash(context)
    if (
        context.memory.suspension is not None and not context.alive()
    ):  # the last member has left since the job was to go on
        context = stop(context)
    if context.status.start_time is None:
        context = context.with_status(start_time=context.now)
    if context.memory.active_since is None:
        context = context.with_memory(
            active_since=context.now,
            starting_since=context.now,
            placed=None,
            started=None,
            advance=_resumes_at(context),
        )
    if context.memory.suspension is None:
        return context
    return context.with_memory(suspension=None, watched_since=context.now)  # nothing was expected of it meanwhile


def stop(context: ReconcileContext) -> ReconcileContext:
    """Stop the clocks of a job without running members, and write its progress for the last time."""
    if context.memory.active_since is None:
        return context
    context = progress.write(context)
    seconds = stamp(context.active_seconds())
    memory = {
        "active_since": None,
        "spent_active_seconds": seconds,
        "starting_since": None,
        "placed": None,
        "started": None,
    }
    return context.with_memory(**memory).with_status(active_seconds=int(seconds))


def roles_up(context: ReconcileContext) -> ReconcileContext:
    """Note when all roles are ready for the first time after a start; from then on the progress deadline counts."""
    if context.memory.started is not None or not all_up(context):
        return context
    return context.with_memory(started=context.now)


def all_up(context: ReconcileContext) -> bool:
    """Whether replay, learner, inference servers and the smallest number of actors are ready."""
    return (
        context.ready(Role.REPLAY) >= context.shards
        and context.learner_ready()
        and context.ready(Role.INFERENCE) >= context.inference_servers
        and context.ready(Role.ACTOR) >= context.needed_actors()
    )


def _resumes_at(context: ReconcileContext) -> AdvanceMemory | None:
    """The advance so far; the last updates before a stop are known from the checkpoint alone, and are no advance later."""
    before, saved = context.memory.advance, context.observed.checkpoint
    if before is None or not saved.usable or saved.step <= before.updates:
        return before
    return before.model_copy(update={"updates": saved.step, "most_updates": max(saved.step, before.most_updates)})


def _after_a_crash(context: ReconcileContext) -> ReconcileContext:
    """A local controller was killed and nothing of its job survived: the time in between was not active.

    The last activeSeconds written stand for what went before; they are at most half a minute old.
    """
    session, since = context.session, context.memory.active_since
    if session is None or since is None or context.alive() or since >= context.now - session.elapsed_seconds - 0.001:
        return context
    return context.with_memory(
        active_since=None, spent_active_seconds=float(context.status.active_seconds), started=None
    )

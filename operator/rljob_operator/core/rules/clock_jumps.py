"""Time that does not count: jumps of the clock, and gaps in which nobody looked. Neither may end a job by itself.

Active time goes on as if the clock had not jumped. Every window (startup, progress, health) begins anew, because what is
known of it is from before. A jump that nobody measured, between two controllers, shows as a gap.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from rljob.api.timestamps import stamp

from rljob_operator.core.context import ReconcileContext
from rljob_operator.core.wall_clock import CLOCK_JUMP_SECONDS

LONGEST_GAP_SECONDS = 120.0
"""A job that runs is looked at every half minute, and what was seen is written every minute and a half at the latest; after a
longer time nobody has watched it."""


def clock_jump(context: ReconcileContext) -> ReconcileContext:
    """Take a jump of the clock out of what is remembered: the one that was measured, or a past that lies in the future."""
    seconds = context.clock.jump_seconds
    written = context.status.progress.last_update_time
    if not seconds and written is not None and written > context.now + CLOCK_JUMP_SECONDS:
        seconds = context.now - written
    return _after_clock_jump(context, seconds) if seconds else context


def gap(context: ReconcileContext) -> ReconcileContext:
    """Begin the windows of a running job anew where nobody has looked for long: the controller was away."""
    written = context.status.progress.last_update_time
    if context.memory.active_since is None or written is None or context.now - written <= LONGEST_GAP_SECONDS:
        return context
    return context.with_memory(watched_since=context.now)


def _after_clock_jump(context: ReconcileContext, seconds: float) -> ReconcileContext:
    memory, now = context.memory, context.now
    active = memory.active_since
    context = context.with_memory(
        active_since=None if active is None else stamp(min(now, max(0.0, active + seconds))),
        watched_since=None if active is None else now,
        starting_since=_past(memory.starting_since, now),
        placed=_past(memory.placed, now),
        started=_past(memory.started, now),
        last_counted_failure=_past(memory.last_counted_failure, now),
        left_out_until=_past(memory.left_out_until, now),
        advance=_with_past(memory.advance, now, "time", "most_time"),
        members=[_with_past(each, now, "time") for each in memory.members],
        outcome=_with_past(memory.outcome, now, "time"),
        suspension=_asked_again(_with_past(memory.suspension, now, "since"), now, "checkpoint_time"),
        checkpoint_request=_asked_again(memory.checkpoint_request, now, "seen"),
    )
    return context.with_status(
        conditions=[_with_past(each, now, "last_transition_time") for each in context.status.conditions],
        progress=_with_past(context.status.progress, now, "last_update_time"),
    )


def _past(moment: float | None, now: float) -> float | None:
    return None if moment is None else min(moment, now)


def _with_past(model: Any, now: float, *fields: str) -> Any:
    """The model with those times, where they lie in the future, set to now; the very one where none does."""
    changed = {name: now for name in fields if (moment := getattr(model, name, None)) is not None and moment > now}
    return model.model_copy(update=changed) if changed else model


def _asked_again(model: BaseModel | None, now: float, field: str) -> Any:
    """A checkpoint that is waited for is asked for again: the learner answers by its own clock, which may have jumped too."""
    if (
        model is None
        or getattr(model, field) is None
        or getattr(model, "done", False)
        or getattr(model, "saved", False)
    ):
        return model
    return model.model_copy(update={field: now})

"""The newest checkpoint in the status, and a user's request for one."""

from rljob.api.controller_memory import CheckpointRequestMemory
from rljob.api.status import CheckpointStatus
from rljob.api.status_model import stamp

from rljob_operator.core.context import ReconcileContext, bounded
from rljob_operator.core.observed import CheckpointState

SKEW_SECONDS = 60.0
"""How far the clock of the learner's machine may be ahead of the controller's."""


def newest(context: ReconcileContext) -> ReconcileContext:
    """Write the newest verified checkpoint into the status; one that was there stays while none is seen."""
    facts = context.observed.checkpoint
    if not facts.usable:
        return context
    found = CheckpointStatus.model_construct(
        step=facts.step, time=stamp(facts.time_seconds), uri=bounded(facts.uri, 2048), digest=bounded(facts.digest, 128)
    )
    return context if found == context.status.checkpoint else context.with_status(checkpoint=found)


def request(context: ReconcileContext) -> ReconcileContext:
    """Remember when a new request was first seen, and when it was met by a verified checkpoint."""
    asked, before = bounded(context.desired.checkpoint_requested_at, 253), context.memory.checkpoint_request
    if not asked:
        return context if before is None else context.with_memory(checkpoint_request=None)
    if before is None or before.requested_at != asked:
        before = CheckpointRequestMemory.model_construct(requested_at=asked, seen=context.now, done=False)
        context = context.with_memory(checkpoint_request=before)
    if not before.done and answers(context, before.seen):
        context = context.with_memory(checkpoint_request=before.model_copy(update={"done": True}))
    return context


def answers(context: ReconcileContext, asked: float) -> bool:
    """Whether the newest checkpoint was begun after that request: it names it, or is younger.

    Its time is by another clock, so it may well be begun after the request and look older; and one from the future is from
    before that clock was set back.
    """
    facts = context.observed.checkpoint
    younger = asked <= facts.time_seconds <= context.now + SKEW_SECONDS
    return facts.state is CheckpointState.VERIFIED and (facts.requested_seconds == asked or younger)


def wanted_seconds(context: ReconcileContext) -> float | None:
    """The request for a checkpoint that the learner has to answer; None where none is asked for beyond the usual interval."""
    moments = []
    if context.memory.checkpoint_request is not None and not context.memory.checkpoint_request.done:
        moments.append(context.memory.checkpoint_request.seen)
    suspension = context.memory.suspension
    if suspension is not None and suspension.checkpoint_time is not None and not suspension.saved:
        moments.append(suspension.checkpoint_time)
    return max(moments, default=None)

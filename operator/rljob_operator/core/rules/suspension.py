"""Suspending a job: its actors leave, the learner saves itself, the checkpoint is verified, then the rest leaves. And what a job
keeps from its start until then."""

from rljob.api.controller_memory import SuspensionMemory

from rljob_operator.core.context import ReconcileContext
from rljob_operator.core.member import Role
from rljob_operator.core.observed import CheckpointState
from rljob_operator.core.rules import checkpoints

PATIENCE_SECONDS = 600.0
"""For so long a suspension waits for a checkpoint; then the pods go, since a full volume would else keep a device for ever."""

RETRY_SECONDS = 60.0
"""A checkpoint that failed is asked for again after this time."""


def note_start(context: ReconcileContext) -> ReconcileContext:
    """Remember what the members of a job that runs start with: a later change does not reach them before they start anew.

    So a suspension in the middle of which such a change was made can't be called off: it goes on to its end, and the job then
    comes up with what was changed.
    """
    digest = context.desired.read_at_start
    return context if context.memory.started_with == digest else context.with_memory(started_with=digest)


def keep_rendering(context: ReconcileContext) -> ReconcileContext:
    """Take over what this operator makes pods with where the job comes up from nothing; keep what is known where it runs.

    Members of different images or renderings need not understand each other, so one that comes back is made as the others were.
    """
    offered, memory = context.desired.rendering, context.memory
    known = memory.rendering
    if offered is None or known == offered:
        return context
    comes_up = memory.active_since is None or (memory.suspension is not None and not context.alive())
    return context.with_memory(rendering=offered) if known is None or comes_up else context


def advance(context: ReconcileContext) -> ReconcileContext:
    """One step of a suspension under way: remember when it began, ask for the checkpoint, see whether it is there."""
    memory = context.memory.suspension
    if memory is None:
        memory = SuspensionMemory.model_construct(
            since=context.now, checkpoint_time=None, checkpoint_step=0, saved=False
        )
        context = context.with_memory(suspension=memory)
    if memory.saved or context.alive(Role.ACTOR, Role.EVALUATOR):
        return context
    if _nothing_to_wait_for(context):
        return context.with_memory(suspension=memory.model_copy(update={"saved": True}))
    if memory.checkpoint_time is None:
        advance = context.memory.advance
        step = advance.updates if advance is not None else 0
        memory = memory.model_copy(update={"checkpoint_time": context.now, "checkpoint_step": step})
    if _checkpoint_is_there(context, memory) or context.since(memory.since) >= PATIENCE_SECONDS:
        memory = memory.model_copy(update={"saved": True})
    elif (
        context.observed.checkpoint.state is CheckpointState.STORAGE_ERROR
        and context.since(memory.checkpoint_time) >= RETRY_SECONDS
    ):
        memory = memory.model_copy(update={"checkpoint_time": context.now})
    return context.with_memory(suspension=memory)


def _nothing_to_wait_for(context: ReconcileContext) -> bool:
    """No checkpoint that would outlive the pods can be had, and the user can't be asked to think again; or there is no trained
    learner alive whose state could be lost."""
    if not context.observed.keeps_checkpoints and not context.spec.suspend:
        return True
    advance = context.memory.advance
    return not context.learner_ready() or advance is None or advance.updates == 0


def _checkpoint_is_there(context: ReconcileContext, memory: SuspensionMemory) -> bool:
    enough = context.observed.keeps_checkpoints and context.observed.checkpoint.step >= memory.checkpoint_step
    return enough and checkpoints.answers(context, memory.checkpoint_time or 0.0)


def unsaved_in_words(context: ReconcileContext) -> str:
    """What a suspension has cost, where the checkpoint that it waited for did not come; empty where nothing is lost."""
    memory, facts, advance = context.memory.suspension, context.observed.checkpoint, context.memory.advance
    if not context.observed.keeps_checkpoints:
        learned = advance is not None and advance.updates > 0
        return "the checkpoints were in the learner's pod and are lost: resuming starts from zero" if learned else ""
    if memory is None or memory.checkpoint_time is None or not memory.saved or _checkpoint_is_there(context, memory):
        return ""
    goes_on = f"continues from update {facts.step:,}" if facts.usable else "starts from zero"
    return f"no checkpoint was verified within {PATIENCE_SECONDS:g} s: resuming {goes_on}"

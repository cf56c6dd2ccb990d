"""How an ending rule says that the job is over."""

from rljob.api.conditions import Reason
from rljob.api.controller_memory import OutcomeMemory

from rljob_operator.core.context import ReconcileContext, bounded
from rljob_operator.core.member import Role

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

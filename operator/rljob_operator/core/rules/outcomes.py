"""How an ending rule says that the job is over."""

from __future__ import annotations

from rljob.api.conditions import Reason
from rljob.api.controller_memory import OutcomeMemory

from rljob_operator.core.context import ReconcileContext, bounded


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

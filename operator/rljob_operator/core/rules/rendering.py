"""What the pods of a job are made with stays as it was when the job was started, whichever operator looks after it meanwhile."""

from rljob_operator.core.context import ReconcileContext


def fix(context: ReconcileContext) -> ReconcileContext:
    """Take over what this operator makes pods with where the job comes up from nothing; keep what is known where it runs.

    Members of different images or renderings need not understand each other, so one that comes back is made as the others were.
    """
    offered, memory = context.desired.rendering, context.memory
    known = memory.rendering
    if offered is None or known == offered:
        return context
    comes_up = memory.active_since is None or (memory.suspension is not None and not context.alive())
    return context.with_memory(rendering=offered) if known is None or comes_up else context

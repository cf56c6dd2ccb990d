"""Actors that end again and again before they work: when they are too many for the job to go on."""

from rljob.api.conditions import Reason
from rljob.api.controller_memory import OutcomeMemory

from rljob_operator.core.context import ReconcileContext
from rljob_operator.core.member import Role
from rljob_operator.core.rules import places
from rljob_operator.core.rules.failures import QUICK_ENDS_OF_A_CRASH_LOOP, exit_code, with_code
from rljob_operator.core.rules.outcomes import failed


def actors_crash_looping(context: ReconcileContext) -> OutcomeMemory | None:
    """More than half of the actors end again and again before they work.

    Only actors that have a place count: those that are leaving, or that fewer actors leave no place for, do no harm. Once
    the job was up, places that are empty for a moment count as well, since a lost node takes healthy actors with it.
    """
    actors = [each for each in context.memory.members if Role.of(each.name) is Role.ACTOR]
    looping = [each.name for each in actors if each.quick_ends >= QUICK_ENDS_OF_A_CRASH_LOOP]
    if not looping:
        return None
    placed = places.placed(context)
    looping = [name for name in looping if name in placed]
    count = len(placed) if context.memory.started is None else max(len(placed), context.allowed_actors())
    more_than_known = context.memory.left_out_until is not None
    too_many = 2 * len(looping) > count
    if not too_many and not (more_than_known and len(looping) == len(actors)):
        return None
    names = set(looping)
    worst = next((f for f in reversed(context.status.failures) if f.role == "Actor"), None)
    seen = next((m for m in context.failed(Role.ACTOR) if m.name in names and m.last_words), None)
    words = seen.last_words if seen is not None else (worst.message if worst is not None else "")
    code = exit_code(seen) if seen is not None else (worst.exit_code if worst is not None else None)
    return failed(
        context,
        Reason.ACTORS_CRASH_LOOPING,
        f"{len(looping)} of {count} actors keep ending before they work; "
        f"{seen.name if seen is not None else looping[0]} ended{with_code(code)}: {words}",
    )

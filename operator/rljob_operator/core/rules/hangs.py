"""Members that run and do not answer: when they are named, and when they are ended so that others can take their place.

On a cluster the kubelet asks and ends them; its probes are rendered with these numbers.
"""

from rljob_operator.core.context import Mode, ReconcileContext
from rljob_operator.core.member import Member, Phase

NAMED_SECONDS = 4.0
"""A member that was silent for so long is named. Asked every two seconds, it is named within ten of its last answer."""

REPLACED_SECONDS = 60.0
"""A member that was silent for so long is ended. Its `/healthz` is answered by a thread of its own, whatever its loop does, so
a long step, a checkpoint or a compilation does not silence it; a loop that stands still for longer than it has promised does."""

START_NAMED_SECONDS = 120.0
START_REPLACED_SECONDS = 600.0
"""The same of a member that starts and has not announced itself. Loading its libraries and building its environments takes a few
seconds, and minutes on a very busy machine. On a cluster a pod that starts has no silence: its startup probe ends it."""


def silent(context: ReconcileContext) -> list[Member]:
    """Members that serve, as far as is known, and do not answer; and those that start and never serve."""
    return [member for member in context.observed.members if _silent_longer(member, NAMED_SECONDS, START_NAMED_SECONDS)]


def in_words(context: ReconcileContext) -> list[str]:
    """The name of each silent member, and how it fails to answer."""
    return [f"{member.name} {member.silent_because}" for member in silent(context)]


def to_replace(context: ReconcileContext, mode: Mode) -> tuple[str, ...]:
    """Members to end at once. One that is leaving has a time of its own."""
    if mode not in (Mode.RUNNING, Mode.SUSPENDING) or not context.observed.ends_silent_members:
        return ()
    return tuple(
        member.name
        for member in context.observed.members
        if _silent_longer(member, REPLACED_SECONDS, START_REPLACED_SECONDS)
    )


def _silent_longer(member: Member, serving_seconds: float, starting_seconds: float) -> bool:
    if member.phase is Phase.READY:
        return member.silent_seconds >= serving_seconds
    return member.phase is Phase.STARTING and member.silent_seconds >= starting_seconds

"""What the API server refuses to make of a job: reported with its own message, and tried again after a pause that grows.

A refusal concerns single members. It changes nothing for others: what runs goes on, ends are answered, and all other members are
made.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from rljob.api.conditions import Reason

from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.kube.apiserver.errors import (
    ApiError,
    Forbidden,
    Invalid,
    LacksRight,
    NamespaceTerminating,
    NotLeader,
    PodSecurityViolated,
    QuotaExceeded,
    Unavailable,
)
from rljob_operator.kube.job.keys import KeysLost, NameConflict
from rljob_operator.kube.render.names import PodProblem

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS: Final = 5.0
LONGEST_PAUSE_SECONDS: Final = 60.0
"""What was refused is tried again after the first pause and then after twice as long each time, since its cause may be outside
the job; at once where the job changes. Where the API server could not find out, as where a webhook that it has to ask can't be
called, it is tried after the first pause each time."""

_REASONS: Final[tuple[tuple[type[Exception], Reason], ...]] = (
    (NameConflict, Reason.NAME_CONFLICT),
    (KeysLost, Reason.KEYS_LOST),
    (QuotaExceeded, Reason.QUOTA_EXCEEDED),
    (NamespaceTerminating, Reason.NAMESPACE_TERMINATING),
    (PodSecurityViolated, Reason.POD_SECURITY_FORBIDDEN),
    (LacksRight, Reason.NOT_MADE),
    (Forbidden, Reason.POD_TEMPLATE_REJECTED),
    (Invalid, Reason.POD_TEMPLATE_REJECTED),
    (PodProblem, Reason.POD_TEMPLATE_REJECTED),
)


def is_defect(problem: Exception) -> bool:
    """Whether it is a mistake in the operator itself."""
    return not isinstance(problem, ApiError | NotLeader | NameConflict | KeysLost | PodProblem)


def in_words(problem: Exception) -> str:
    """What its user is told of a problem."""
    if not is_defect(problem):
        return str(problem)
    return f"the operator has a defect, its log says where: {type(problem).__name__}: {problem}"


@dataclass(frozen=True, slots=True)
class Refused:
    """One member that can't be made. ``since_seconds``: Unix seconds; ``again_at``: monotonic."""

    reason: Reason | None
    words: str
    since_seconds: float
    pause_seconds: float
    again_at: float


@dataclass(slots=True)
class Refusals:
    """What was refused of one job, by member."""

    of: dict[str, Refused] = field(default_factory=dict)
    generation: int = 0
    looked_at: float = 0.0

    def told(self, members: Iterable[Member], generation: int, now: float) -> tuple[Member, ...]:
        """The members, also those that can't be made, and why an ended one is not started again."""
        if generation != self.generation:
            self.try_now(now)
        self.generation, self.looked_at = generation, now
        found = {member.name: member for member in members}
        for name, each in self.of.items():
            member = found.get(name, Member(name, Role.of(name), since_seconds=each.since_seconds))
            if member.phase in (Phase.ABSENT, Phase.STARTING, Phase.EXITED):
                found[name] = replace(
                    member, waiting=each.reason, waiting_message=each.words, placed=False, held=each.again_at > now
                )
        return tuple(found.values())

    def try_now(self, now: float) -> None:
        """The cause of the refusals may be gone: try again now."""
        self.of = {name: replace(each, pause_seconds=0.0, again_at=now) for name, each in self.of.items()}

    def note(self, problems: Mapping[str, Exception], now: float, now_seconds: float) -> None:
        """What was refused now. What was due and is not among it was made, or is no longer wanted."""
        before, self.of = self.of, {name: each for name, each in self.of.items() if each.again_at > self.looked_at}
        for name, problem in problems.items():
            if is_defect(problem):
                log.error("%s can't be made", name, exc_info=problem)
            known = before.get(name)
            pause = 2 * known.pause_seconds if known is not None else 0.0
            longest = FIRST_PAUSE_SECONDS if isinstance(problem, Unavailable) else LONGEST_PAUSE_SECONDS
            pause = min(max(pause, FIRST_PAUSE_SECONDS), longest)
            reason = next((reason for kind, reason in _REASONS if isinstance(problem, kind)), Reason.NOT_MADE)
            since = known.since_seconds if known is not None else now_seconds
            words = in_words(problem) + _HOW_TO_MEND.get(reason, "")
            self.of[name] = Refused(reason, words, since, pause, now + pause)

    def due_in(self, now: float) -> float:
        """Seconds until the next is to be tried again; infinity where nothing is refused."""
        return max(0.0, min((each.again_at for each in self.of.values()), default=float("inf")) - now)


_HOW_TO_MEND: Final = dict.fromkeys(
    (Reason.POD_TEMPLATE_REJECTED, Reason.POD_SECURITY_FORBIDDEN),
    "; to change a role, set suspend: true with it, and resume",
)
"""A refused job need not be made anew, though roles change only in suspension."""

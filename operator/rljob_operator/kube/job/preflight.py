"""What the API server says of a job's pods before the first of them is made, and how long that is believed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from rljob.api.conditions import Reason

from rljob_operator.core.desired import Refusal
from rljob_operator.core.member import Member, Role
from rljob_operator.core.observed import Admission
from rljob_operator.kube.apiserver.errors import (
    Forbidden,
    Invalid,
    NamespaceTerminating,
    PodSecurityViolated,
    QuotaExceeded,
)
from rljob_operator.kube.job.keys import KeysLost
from rljob_operator.kube.job.owned import NameConflict
from rljob_operator.kube.job.stored import StoredJob
from rljob_operator.kube.render import names
from rljob_operator.kube.render.problems import PodProblem

AGAIN_SECONDS: Final = 30.0
"""What was refused is tried again after so long, since its cause may be outside the job; and at once where the job changes."""


_OF_CHILDREN: Final = (Reason.NAME_CONFLICT, Reason.KEYS_LOST)


class Tries(Protocol):
    """Who can have pods checked without making them; see `apply.PodWriter`."""

    async def try_one_of_each(self, stored: StoredJob, members: list[str]) -> None:
        """Raises the API server's refusal, or `PodProblem`."""


@dataclass(slots=True)
class Preflight:
    """Of one job. ``refusal`` and ``admission`` stand until a later check is passed.

    Attributes:
        refusal: why its pods can't be made.
        admission: that the namespace's quota has no room for them; None where it has, as far as is known.
    """

    refusal: Refusal | None = None
    admission: Admission | None = None
    checked_generation: int = 0
    again_at: float = float("inf")

    async def check(
        self, stored: StoredJob, writer: Tries, now: float, make_children: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Have one pod of every role checked, where the job has changed since, or what was refused is due. ``now``: monotonic.

        Where it was refused for what it has besides pods, that is tried to be made as well (``make_children``): until it can be,
        the refusal stands.
        """
        generation = stored.desired.generation
        if stored.desired.refusal is not None or stored.desired.suspends or stored.stopped or stored.status.finished:
            self.refusal = self.admission = None  # said of pods that nobody wants now
            self.checked_generation, self.again_at = 0, float("inf")  # when somebody does, it starts with a check
            return
        if generation == self.checked_generation and now < self.again_at:
            return
        try:
            await writer.try_one_of_each(stored, one_of_each(stored))
            if make_children is not None and self.refusal is not None and self.refusal.reason in _OF_CHILDREN:
                await make_children()
        except (NameConflict, KeysLost) as problem:
            self.children_refused(problem, generation, now)
        except QuotaExceeded as problem:
            self.refusal = None
            self.quota_exceeded(str(problem), now)
        except NamespaceTerminating as problem:
            self._refuse(Reason.NAMESPACE_TERMINATING, str(problem), now)
        except PodSecurityViolated as problem:
            self._refuse(Reason.POD_SECURITY_FORBIDDEN, f"{problem}; {_how_to_mend(stored)}", now)
        except (PodProblem, Invalid, Forbidden) as problem:
            self._refuse(Reason.POD_TEMPLATE_REJECTED, f"{problem}; {_how_to_mend(stored)}", now)
        else:
            self.refusal, self.admission, self.again_at = None, None, float("inf")
        self.checked_generation = generation

    def quota_exceeded(self, words: str, now: float) -> None:
        """The namespace's quota has refused a pod."""
        self.admission = Admission(False, Reason.QUOTA_EXCEEDED, words)
        self.again_at = now + AGAIN_SECONDS

    def admitted(self, members: Iterable[Member]) -> Admission | None:
        """What the quota means for a job with these members.

        One whose core came up, which its actors show, keeps what it has and gets no more actors: it is not stopped for one
        that has no room. Any other waits until there is room for it.
        """
        actors = sum(member.role is Role.ACTOR and not member.asked for member in members)
        if self.admission is None or not actors:
            return self.admission
        return Admission(True, Reason.QUOTA_RESERVED, self.admission.message, max_actors=actors)

    def children_refused(self, problem: NameConflict | KeysLost, generation: int, now: float) -> None:
        """A name that the job needs belongs to somebody else, or its keys are lost."""
        self.checked_generation = generation
        reason = Reason.NAME_CONFLICT if isinstance(problem, NameConflict) else Reason.KEYS_LOST
        self._refuse(reason, str(problem), now)

    def check_again(self) -> None:
        """The next look begins with a check, whatever was said before."""
        self.checked_generation = 0

    def sooner(self, seconds: float | None, now: float) -> float | None:
        """When to look again: after ``seconds``, or when what was refused is due."""
        if self.again_at == float("inf"):
            return seconds
        due = max(0.0, self.again_at - now)
        return due if seconds is None else min(seconds, due)

    def _refuse(self, reason: Reason, words: str, now: float) -> None:
        self.refusal = Refusal(reason, words)
        self.again_at = now + AGAIN_SECONDS


def _how_to_mend(stored: StoredJob) -> str:
    """A refused job need not be made anew, though roles change only in suspension, and that may need a place for checkpoints."""
    checkpoint = stored.desired.job.spec.checkpoint
    skip = " and checkpoint.onSuspend: Skip" if checkpoint.storage is None and checkpoint.on_suspend != "Skip" else ""
    return f"to change a role, set suspend: true{skip} with it, and resume"


def one_of_each(stored: StoredJob) -> list[str]:
    """A member of every role that the job has or may come to have."""
    found: dict[Role, str] = {}
    for member in names.first_members(stored.desired.job):
        found.setdefault(Role.of(member), member)
    found.setdefault(Role.ACTOR, "actor-0")
    return list(found.values())

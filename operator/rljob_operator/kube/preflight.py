"""What the API server says of a job's pods before the first of them is made, and how long that is believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from rljob.api.conditions import Reason

from rljob_operator.core.desired import Refusal
from rljob_operator.core.member import Role
from rljob_operator.core.observed import Admission
from rljob_operator.kube import names
from rljob_operator.kube.errors import Forbidden, Invalid, PodSecurityViolated, QuotaExceeded
from rljob_operator.kube.render.problems import PodProblem
from rljob_operator.kube.stored import StoredJob

AGAIN_SECONDS: Final = 30.0
"""What was refused is tried again after so long, since its cause may be outside the job; and at once where the job changes."""


class Tries(Protocol):
    """Who can have pods checked without making them; see `apply.PodWriter`."""

    async def try_one_of_each(self, stored: StoredJob, members: list[str]) -> None:
        """Raises the API server's refusal, or `PodProblem`."""


@dataclass(slots=True)
class Preflight:
    """Of one job. ``refusal`` and ``admission`` stand until a later check is passed.

    Attributes:
        refusal: why its pods can't be made.
        admission: that the namespace's quota has no room for the job, or none for more of its actors; None where it has room,
            as far as is known.
    """

    refusal: Refusal | None = None
    admission: Admission | None = None
    checked_generation: int = 0
    again_at: float = float("inf")

    async def check(self, stored: StoredJob, writer: Tries, running: Sequence[Role], now: float) -> None:
        """Have one pod of every role checked, where the job has changed since, or what was refused is due.

        ``running``: the roles of the pods that there are; ``now``: monotonic.
        """
        generation, spec = stored.desired.generation, stored.desired.job.spec
        if generation == self.checked_generation and now < self.again_at:
            return
        if stored.desired.refusal is not None or spec.suspend or stored.status.finished:
            self.refusal = self.admission = None  # said of pods that nobody wants now
            self.again_at = float("inf")
            return
        try:
            await writer.try_one_of_each(stored, one_of_each(stored))
        except QuotaExceeded as problem:
            self.refusal = None
            self.quota_exceeded(str(problem), running, now)
        except PodSecurityViolated as problem:
            self._refuse(Reason.POD_SECURITY_FORBIDDEN, str(problem), now)
        except (PodProblem, Invalid, Forbidden) as problem:
            self._refuse(Reason.POD_TEMPLATE_REJECTED, str(problem), now)
        else:
            self.refusal = self.admission = None
            self.again_at = float("inf")
        self.checked_generation = generation

    def quota_exceeded(self, words: str, running: Sequence[Role], now: float) -> None:
        """The namespace's quota has refused a pod. A job that runs keeps what it has, and gets no more actors meanwhile; one that
        does not run waits as a whole."""
        if running:
            self.admission = Admission(True, Reason.NOT_MANAGED, words, max_actors=running.count(Role.ACTOR))
        else:
            self.admission = Admission(False, Reason.QUOTA_EXCEEDED, words)
        self.again_at = now + AGAIN_SECONDS

    def name_conflict(self, words: str, generation: int, now: float) -> None:
        """A name that the job needs belongs to somebody else."""
        self.checked_generation = generation
        self._refuse(Reason.NAME_CONFLICT, words, now)

    def sooner(self, seconds: float | None, now: float) -> float | None:
        """When to look again: after ``seconds``, or when what was refused is due."""
        if self.again_at == float("inf"):
            return seconds
        due = max(0.0, self.again_at - now)
        return due if seconds is None else min(seconds, due)

    def _refuse(self, reason: Reason, words: str, now: float) -> None:
        self.refusal = Refusal(reason, words)
        self.again_at = now + AGAIN_SECONDS


def one_of_each(stored: StoredJob) -> list[str]:
    """A member of every role that the job has or may come to have."""
    found: dict[Role, str] = {}
    for member in names.first_members(stored.desired.job):
        found.setdefault(Role.of(member), member)
    found.setdefault(Role.ACTOR, "actor-0")
    return list(found.values())

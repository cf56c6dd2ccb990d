"""What was asked of the API server and has not come back through the watch yet.

The cache of pods lags behind: a reconciliation right after a pod was created does not find it and would create another. So a job
whose own changes have not all been seen is not acted on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

LAPSE_SECONDS = 30.0
"""A watch that works tells within a second. Later than this, something is out of order, and it is not waited for."""


class Seen(StrEnum):
    """How the cache stands to what was asked for one job."""

    ALL = "All"
    """Everything has been seen: the cache may be acted on."""
    WAITING = "Waiting"
    """Something has not been seen yet: do nothing that depends on the cache, the missing event will come."""
    LAPSED = "Lapsed"
    """Something should have been seen long ago: list the job's pods from the API server itself before acting, then `forget`."""


@dataclass(slots=True)
class _Asked:
    created: dict[str, float] = field(default_factory=dict)  # name -> asked at
    deleted: dict[str, float] = field(default_factory=dict)  # uid -> asked at


class Expectations:
    """Per job (by its uid): the pods that are to appear, by name, and those that are to go, by uid.

    Say what is expected before it is asked for, since the answer of the watch may come before that of the call; take it back
    where the call fails. ``now`` counts seconds and only goes forward.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, lapse_seconds: float = LAPSE_SECONDS) -> None:
        self._now, self._lapse_seconds = now, lapse_seconds
        self._jobs: dict[str, _Asked] = {}

    def create(self, job_uid: str, name: str) -> None:
        """A pod of this name is about to be created."""
        self._jobs.setdefault(job_uid, _Asked()).created[name] = self._now()

    def delete(self, job_uid: str, uid: str) -> None:
        """The pod with this uid is about to be deleted."""
        self._jobs.setdefault(job_uid, _Asked()).deleted[uid] = self._now()

    def not_created(self, job_uid: str, name: str) -> None:
        """The call that should create it has failed for certain."""
        self._take_back(job_uid, name, None)

    def not_deleted(self, job_uid: str, uid: str) -> None:
        """The call that should delete it has failed for certain."""
        self._take_back(job_uid, None, uid)

    def doubt(self, job_uid: str) -> None:
        """It is unknown whether a call had its effect: the next reconciliation lists the job's pods."""
        self._jobs.setdefault(job_uid, _Asked()).created[""] = float("-inf")

    def observe(self, job_uid: str, kind: str, pod: Mapping[str, Any]) -> None:
        """An event of the watch: ADDED, MODIFIED or DELETED. A pod that is being deleted counts as gone."""
        if job_uid not in self._jobs:
            return
        about = pod["metadata"]
        going = kind == "DELETED" or about.get("deletionTimestamp") is not None
        self._take_back(job_uid, about["name"], about["uid"] if going else None)

    def forget(self, job_uid: str) -> None:
        """The job is gone, or its pods were listed from the API server itself."""
        self._jobs.pop(job_uid, None)

    def seen(self, job_uid: str) -> Seen:
        """How the cache stands to what was asked for this job."""
        if job_uid not in self._jobs:
            return Seen.ALL
        return Seen.WAITING if self.lapses_in_seconds(job_uid) > 0.0 else Seen.LAPSED

    def lapses_in_seconds(self, job_uid: str) -> float:
        """When to reconcile a job that waits, should no event come before; 0 where it need not wait."""
        asked = self._jobs.get(job_uid)
        if asked is None:
            return 0.0
        oldest = min([*asked.created.values(), *asked.deleted.values()])
        return max(0.0, oldest + self._lapse_seconds - self._now())

    def _take_back(self, job_uid: str, name: str | None, uid: str | None) -> None:
        asked = self._jobs.get(job_uid)
        if asked is None:
            return
        if name is not None:
            asked.created.pop(name, None)
        if uid is not None:
            asked.deleted.pop(uid, None)
        if not asked.created and not asked.deleted:
            del self._jobs[job_uid]

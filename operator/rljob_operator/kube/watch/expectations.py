"""What was asked of the API server and has not come back through the watch yet.

The cache of pods lags behind: a reconciliation right after a pod was created does not find it and would create another. So a job
whose own changes have not all been seen is not acted on.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

LAPSE_SECONDS = 30.0
"""A watch that works tells within a second. Later than this, something is out of order, and it is not waited for."""


class Expectations:
    """Per job (by its uid): the names of pods that are to appear, and the uids of those that are to go.

    Say what is expected before it is asked for, since the answer of the watch may come before that of the call; take it back
    where the call fails. ``now`` counts seconds and only goes forward.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, lapse_seconds: float = LAPSE_SECONDS) -> None:
        self._now, self._lapse_seconds = now, lapse_seconds
        self._jobs: dict[str, dict[str, float]] = {}  # name or uid -> asked at

    def expect(self, job_uid: str, pod: str) -> None:
        """A pod of this name is about to be created, or the one with this uid about to be deleted."""
        self._jobs.setdefault(job_uid, {})[pod] = self._now()

    def take_back(self, job_uid: str, *pods: str) -> None:
        """These were seen, or the call that should create or delete them has failed for certain."""
        left = {pod: asked for pod, asked in self._jobs.pop(job_uid, {}).items() if pod not in pods}
        self._jobs |= {job_uid: left} if left else {}

    def doubt(self, job_uid: str) -> None:
        """It is unknown whether a call had its effect: the next reconciliation lists the job's pods."""
        self._jobs.setdefault(job_uid, {})[""] = float("-inf")

    def observe(self, job_uid: str, kind: str, pod: Mapping[str, Any]) -> None:
        """An event of the watch: ADDED, MODIFIED or DELETED. A pod that is being deleted counts as gone."""
        about = pod["metadata"]
        going = kind == "DELETED" or about.get("deletionTimestamp") is not None
        self.take_back(job_uid, about["name"], *([about["uid"]] if going else []))

    def forget(self, job_uid: str) -> None:
        """The job is gone, or its pods were listed from the API server itself."""
        self._jobs.pop(job_uid, None)

    def waits_seconds(self, job_uid: str) -> float | None:
        """How long to wait for what was asked for one job, should no event come before: nothing is done until then that depends
        on the cache. 0: it should have been seen long ago, so list the job's pods from the API server itself, then `forget`.
        None: everything has been seen."""
        asked = self._jobs.get(job_uid)
        return max(0.0, min(asked.values()) + self._lapse_seconds - self._now()) if asked else None

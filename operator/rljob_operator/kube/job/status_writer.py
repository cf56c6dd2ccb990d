"""Stores the statuses of jobs: before anything is done about what must not be forgotten, and otherwise when they are due, which
is the later the longer the API server takes for a write. What is remembered of a job between two reconciliations can all be
found out again but what is in the status.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rljob.api.conditions import ConditionType
from rljob.api.status import RLJobStatus

from rljob_operator.core.turn import StatusWrite
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import RLJOBS, merge_patch
from rljob_operator.kube.job import children
from rljob_operator.kube.job.refusals import Refusals
from rljob_operator.kube.job.stored import ReadBefore, StoredJob, status_document
from rljob_operator.kube.render.settings import Settings

NEVER: Final = float("inf")


@dataclass(slots=True)
class RememberedJob:
    """What is remembered of one stored object.

    Attributes:
        uid: of the object; one that is made anew under the same name is another job.
        status: the newest one, where it is newer than the stored one.
        stored: the one that our own last write has stored; None where what the object says of itself is newer.
        of_others: conditions in it that other clients have added; they are left alone.
        resource_version: of the object after our own last write of its status.
        written: when that was, monotonic.
        due: when ``status``, which is not stored yet, has to be; infinity where it is.
        were_up: incarnations that were ready once; a learner that is not ready any more is still asked for its checkpoint.
        at_start: the operator's settings as far as the cluster has volumes for them, found out before the job starts.
        children_seen: whether this operator has looked at what there is besides the pods, and whom the NetworkPolicy lets in.
        noted: the note of it that was stored last (`children.keep_note`).
    """

    uid: str
    status: RLJobStatus | None = None
    stored: RLJobStatus | None = None
    of_others: list[Mapping[str, Any]] = field(default_factory=list)
    resource_version: str = ""
    written: float = -NEVER
    due: float = NEVER
    read: ReadBefore = field(default_factory=ReadBefore)
    children: children.Known = field(default_factory=children.Known)
    refusals: Refusals = field(default_factory=Refusals)
    were_up: set[str] = field(default_factory=set)
    at_start: Settings | None = None
    children_seen: bool = False
    noted: Mapping[str, Any] = field(default_factory=dict)

    def note_version(self, version: str) -> None:
        """The object as it is stored has this version. Where that is newer than our own last write another client has changed it,
        perhaps its status, too: what is remembered gives way."""
        if not self.resource_version or int(version) > int(self.resource_version):
            self.status, self.stored, self.due, self.resource_version = None, None, NEVER, version


PROGRESS_SECONDS: Final = 30.0
"""A status that differs in progress alone is written at most so often."""
SEEN_SECONDS: Final = 3.0
"""The same for one that differs in what is seen."""
SELDOM_SECONDS: Final = 90.0
"""However little there is to tell, and however slow the API server: no operator looks after a job whose status is older."""
QUICK_WRITE_SECONDS: Final = 0.1
MOST_TIMES_LATER: Final = 3.0
"""Where writes take longer than ``QUICK_WRITE_SECONDS``, the API server is overloaded: writes that may wait do so as many times
longer, up to this."""
_NEWEST_COUNTS: Final = 0.2


class WriteTimes:
    """When statuses are written, for all jobs of one operator: their writes go to one API server. Seconds only go forward."""

    def __init__(self, seen_seconds: float = SEEN_SECONDS) -> None:
        self._seen_seconds, self._write_seconds = seen_seconds, 0.0

    def took(self, seconds: float) -> None:
        """A status was written, and that took so long."""
        self._write_seconds += _NEWEST_COUNTS * (seconds - self._write_seconds)

    def due(self, write: StatusWrite, now: float, written: float) -> float:
        """When a status has to be stored that differs so from the stored one, which was written at ``written``.

        What is seen is told at once where nothing was written just before. Only with an overloaded API server it waits for more
        to come: a role that is ready, and what its learner reports then, are one write.
        """
        later = min(max(1.0, self._write_seconds / QUICK_WRITE_SECONDS), MOST_TIMES_LATER)
        return {
            StatusWrite.BEFORE_ACTING: now,
            StatusWrite.SOON: max(written + later * self._seen_seconds, now + (later - 1.0) * self._seen_seconds),
            StatusWrite.WHEN_DUE: written + min(later * PROGRESS_SECONDS, SELDOM_SECONDS),
            StatusWrite.SELDOM: written + SELDOM_SECONDS,
            StatusWrite.NONE: NEVER,
        }[write]


_OURS: Final = frozenset(ConditionType)


class StatusWriter:
    """Writes the statuses of all jobs of one operator. ``monotonic``: seconds that only go forward."""

    def __init__(self, client: Client, times: WriteTimes, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._client, self._times, self._monotonic = client, times, monotonic

    async def store(self, stored: StoredJob, known: RememberedJob, status: RLJobStatus, write: StatusWrite) -> None:
        """Store the status, or remember it until it is due. Raises what `Client.patch` raises."""
        now = self._monotonic()
        known.due = min(known.due, self._times.due(write, now, known.written))
        is_stored = known.due == NEVER and (write is StatusWrite.NONE or status == stored.status)
        if is_stored or (write is not StatusWrite.BEFORE_ACTING and now < known.due):
            known.status = status
            return
        await self.write(stored.document, known, status)
        self._times.took(self._monotonic() - now)

    async def write(self, document: Mapping[str, Any], known: RememberedJob, status: RLJobStatus) -> None:
        """Send what differs: a server does less for that than for the whole status, applied. It is remembered only once it is
        stored: a reconciliation that started from a status which was never stored would not write it again."""
        now = self._monotonic()
        if known.stored is None:  # the object is as it was read
            before = status_document(document)
            known.of_others = [each for each in before.get("conditions") or () if each.get("type") not in _OURS]
        else:
            before = _with(known.stored, known.of_others)
        change = merge_patch(before, _with(status, known.of_others))
        if change:
            about = document["metadata"]
            answer = await self._client.patch(
                RLJOBS,
                about["namespace"],
                about["name"],
                {"status": change},
                resource_version=known.resource_version,
                subresource="status",
            )
            known.resource_version = answer["metadata"]["resourceVersion"]
        known.stored = known.status = status
        known.due, known.written = NEVER, now


def _with(status: RLJobStatus, of_others: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The status as it is stored. A merge patch replaces lists as a whole, so it has the conditions of others, too."""
    document = status.document()
    return {**document, "conditions": [*document["conditions"], *of_others]} if of_others else document

"""Stores the statuses of jobs: before anything is done about what must not be forgotten, and otherwise when they are due."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from rljob.api.conditions import ConditionType
from rljob.api.status import RLJobStatus

from rljob_operator.core.turn import StatusWrite
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.merge_patch import merge_patch
from rljob_operator.kube.apiserver.resources import RLJOBS
from rljob_operator.kube.job.alike import Alike
from rljob_operator.kube.job.remembered import NEVER, RememberedJob
from rljob_operator.kube.job.stored import StoredJob, status_document
from rljob_operator.kube.job.write_times import WriteTimes

_OURS: Final = frozenset(ConditionType)


class StatusWriter:
    """Of all jobs of one operator. ``monotonic``: seconds that only go forward."""

    def __init__(
        self, client: Client, times: WriteTimes, alike: Alike, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._times, self._alike, self._monotonic = client, times, alike, monotonic

    async def store(self, stored: StoredJob, known: RememberedJob, status: RLJobStatus, write: StatusWrite) -> None:
        """Store the status, or remember it until it is due. Raises what `Client.patch` raises."""
        now = self._monotonic()
        if status.effective_spec is not stored.status.effective_spec:
            status = self._alike.status(status)
        known.due = min(known.due, self._times.due(write, now, known.written))
        is_stored = known.due == NEVER and (write is StatusWrite.NONE or status == stored.status)
        if is_stored or (write is not StatusWrite.BEFORE_ACTING and now < known.due):
            known.status = status
            return
        await self.write(stored.document, known, status)
        self._times.took(self._monotonic() - now)

    async def write(self, document: Mapping[str, Any], known: RememberedJob, status: RLJobStatus) -> None:
        """Send what differs: a server does less for that than for the whole status, applied. It is remembered only once it is
        stored: a turn that started from a status which nobody has would not write it again."""
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

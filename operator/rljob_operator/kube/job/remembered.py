"""What the operator remembers of a job between two turns. All of it can be found out again but what is in the status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rljob.api.status import RLJobStatus

from rljob_operator.kube.job import children
from rljob_operator.kube.job.refusals import Refusals
from rljob_operator.kube.job.stored import ReadBefore
from rljob_operator.kube.render.settings import Settings

NEVER: Final = float("inf")


@dataclass(slots=True)
class RememberedJob:
    """What is remembered of one stored object.

    Attributes:
        uid: of the object; one that is made anew under the same name is another job.
        status: the newest one, where it is newer than the stored one.
        stored: the one that our own last write has stored; None where what the object says of itself is newer.
        of_others: conditions in it that somebody else has added; they are left alone.
        resource_version: of the object after our own last write of its status.
        written: when that was, monotonic.
        due: when ``status``, which is not stored yet, has to be; infinity where it is.
        were_up: incarnations that were ready once; a learner that is not ready any more is still asked for its checkpoint.
        at_start: the operator's settings as far as the cluster has volumes for them, found out before the job starts.
        children_seen: whether this operator has looked at what there is besides the pods, and whom the NetworkPolicy lets in.
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

    def note_version(self, version: str) -> None:
        """The object as it is stored has this version. Where that is newer than our own last write somebody else has changed it,
        perhaps its status, too: what is remembered gives way."""
        if not self.resource_version or int(version) > int(self.resource_version):
            self.status, self.stored, self.due, self.resource_version = None, None, NEVER, version

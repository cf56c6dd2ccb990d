"""What a job's queue means for it, as the core is told. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rljob.api.conditions import Reason

from rljob_operator.core.member import Member, Role
from rljob_operator.core.observed import Admission
from rljob_operator.kube.job.stored import StoredJob
from rljob_operator.kube.render.workload import QUEUE_LABEL, queue_of


def ignored(document: Mapping[str, Any]) -> Admission | None:
    """What an operator that asks no queue says of a job that names one."""
    if not queue_of(document):
        return None
    words = f"the label {QUEUE_LABEL} has no effect: kueue.enabled was not set in the operator's configuration when it started"
    return Admission(True, Reason.NOT_MANAGED, words)


def unknown(stored: StoredJob, members: Sequence[Member], why: str) -> Admission:
    """While nobody knows what the queue says, what runs goes on as it is, and nothing new begins."""
    before = stored.status.admission
    name = before.workload if before is not None else ""
    if any(member.alive for member in members):
        actors = sum(member.alive and not member.asked for member in members if member.role is Role.ACTOR)
        return Admission(True, Reason.QUOTA_RESERVED, why, workload=name, max_actors=actors)
    return Admission(False, Reason.WAITING_FOR_QUOTA, why, workload=name)


def waiting(queue: str, words: str, workload: str = "", reason: Reason = Reason.WAITING_FOR_QUOTA) -> Admission:
    """A job that has no quota, and why."""
    return Admission(False, reason, in_queue(queue, words), workload=workload)


def in_queue(queue: str, words: str) -> str:
    """The words with the queue that they are about."""
    return f"queue {queue}: {words}" if queue else words

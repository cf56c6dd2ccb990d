"""A pod of the model: a tuple of small values, and the same in the API server's own form."""

import json
from enum import IntEnum
from functools import cache, lru_cache
from typing import Any, NamedTuple

from rljob.api.status_model import rfc3339
from rljob_operator.kube.render import names
from rljob_operator.kube.watch.pods import _remains

from tests.search.statuses import NOW

_CREATED, _BEGAN, _ENDED, _DELETED = 75, 12, 35, 50
"""Ages in seconds from which on nothing changes: a start takes too long, a life has worked, a new one is due, a node is lost."""
GRACE_SECONDS = 30
CHECKPOINT_URI = "file:///run/checkpoint"
NO_TIME = -1


class Stage(IntEnum):
    """Where a pod is in its life."""

    WAITING = 0
    """It has no node."""
    PLACED = 1
    """It has a node; its container has not begun."""
    RUNNING = 2
    ENDED = 3


class End(IntEnum):
    """How a pod ended."""

    NONE = 0
    EXIT_0 = 1
    EXIT_1 = 2
    OOM = 3
    EXIT_78 = 4
    SIGTERM = 5
    """Its role was told to leave and did so in good order, with 143."""
    SIGKILL = 6
    REFUSED = 7
    """By its kubelet, before its container ran."""
    DEADLINE = 8
    """Its own activeDeadlineSeconds."""
    INIT_FAILED = 9
    NEVER_RAN = 10
    """It was deleted before its container ran."""
    LEFT_WITH_0 = 11
    """As SIGTERM, by a role that ends with 0 then."""


class Cause(IntEnum):
    """Why a pod ended or is to end, in truth: what the operator is measured by."""

    NONE = 0
    OWN = 1
    DISRUPTION = 2
    ASKED = 3
    """The operator deleted it."""
    EITHER = 4
    """Two of them in the same second."""


class Pod(NamedTuple):
    """One pod. Ages are whole seconds, `NO_TIME` where it has not come to that."""

    member: str
    life: int
    follows: int
    """The life that its name follows on; -1 for none. Member and this are its name."""
    stage: int
    end: int
    cause: int
    created: int
    began: int
    ended: int
    deleted: int
    """Since its deletion was asked for."""
    grace: int
    disruption: str
    """Reason of its condition DisruptionTarget."""
    asked: bool
    lost: bool
    """Its node is not heard of."""
    trouble: str
    """Why it does not come up: `no place` or `no image`."""
    work: int
    """Updates of a learner, in tens, from which it would go on."""
    gone: bool
    """The API server no longer has it: this is the last that was seen of it."""
    said: int
    """Updates in the checkpoint that its last words name; -1 for none."""
    bare: bool = False
    """Its labels were taken off."""

    @property
    def uid(self) -> str:
        return uid(self.member, self.life)

    @property
    def alive(self) -> bool:
        return self.stage != Stage.ENDED

    @property
    def works(self) -> bool:
        """Whether it runs, is not leaving, and is on a node that is there."""
        return self.stage == Stage.RUNNING and self.deleted < 0 and not self.lost


Pods = tuple[Pod, ...]


@cache
def uid(member: str, life: int) -> str:
    return f"{member}:{life}"


def new_pod(member: str, life: int, follows: int) -> Pod:
    """One that was created just now."""
    return Pod(
        member, life, follows, Stage.WAITING, End.NONE, Cause.NONE, 0, NO_TIME, NO_TIME, NO_TIME, 0, "", False, False, "", 0,
        False, -1,
    )  # fmt: skip


def older(pod: Pod, seconds: int) -> Pod:
    return pod._replace(
        created=min(pod.created + seconds, _CREATED),
        began=_older(pod.began, seconds, _BEGAN + max(pod.ended, 0)),
        ended=_older(pod.ended, seconds, _ENDED),
        deleted=_older(pod.deleted, seconds, _DELETED),
    )


def _older(age: int, seconds: int, oldest: int) -> int:
    return age if age < 0 else min(age + seconds, max(age, oldest))


# ---------------------------------------------------------------------------------------------- the API server's form

_CODES = {
    End.EXIT_0: 0,
    End.EXIT_1: 1,
    End.OOM: 137,
    End.EXIT_78: 78,
    End.SIGTERM: 143,
    End.SIGKILL: 137,
    End.DEADLINE: 143,
    End.LEFT_WITH_0: 0,
}


@lru_cache(maxsize=200_000)
def document(pod: Pod) -> dict[str, Any]:
    """The pod as the operator's cache has it."""
    about: dict[str, Any] = {
        "name": f"job-{pod.member}-{pod.follows}",
        "namespace": "team",
        "uid": pod.uid,
        "resourceVersion": "1",
        "creationTimestamp": _at(pod.created),
        "labels": {} if pod.bare else names.member_labels("job", pod.member),
    }
    if pod.asked:
        about["annotations"] = {names.ASKED_ANNOTATION: _at(0)}
    if pod.deleted >= 0:
        about["deletionTimestamp"] = rfc3339(NOW - pod.deleted + pod.grace)
        about["deletionGracePeriodSeconds"] = pod.grace
    node = {"nodeName": f"node-of-{pod.member}"} if pod.stage > Stage.WAITING or pod.end > End.NONE else {}
    spec = {"hostname": pod.member, **node}
    found = {"metadata": about, "spec": spec, "status": _status(pod)}
    if pod.gone:
        about.setdefault("deletionTimestamp", _at(0))
        found = _remains(found)
    return found


def _status(pod: Pod) -> dict[str, Any]:
    conditions: list[dict[str, Any]] = []
    found: dict[str, Any] = {"phase": "Pending", "conditions": conditions}
    if pod.disruption:
        conditions.append(_condition("DisruptionTarget", "True", max(pod.deleted, 0), pod.disruption))
    if pod.stage == Stage.WAITING:
        if pod.trouble:
            conditions.append(_condition("PodScheduled", "False", pod.created, "Unschedulable", "0/3 nodes"))
        return found
    conditions.append(_condition("PodScheduled", "True", pod.created))
    state: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}
    if pod.stage == Stage.PLACED and pod.trouble:
        state = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    if pod.stage == Stage.RUNNING:
        found["phase"] = "Running"
        state = {"running": {"startedAt": _at(pod.began)}}
        conditions.append(_condition("Ready", "True", pod.began))
    if pod.stage == Stage.ENDED:
        found["phase"] = "Succeeded" if _CODES.get(End(pod.end)) == 0 else "Failed"
        conditions.append(_condition("Ready", "False", pod.ended))
        if pod.end == End.REFUSED:
            found |= {"reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}
            return found
        if pod.end == End.DEADLINE:
            found |= {"reason": "DeadlineExceeded", "message": "Pod was active on the node longer than the deadline"}
        if pod.end == End.INIT_FAILED:
            ended = {"exitCode": 1, "reason": "Error", "finishedAt": _at(pod.ended)}
            found["initContainerStatuses"] = [{"name": "redis", "state": {"terminated": ended}}]
            state = {"waiting": {"reason": "PodInitializing"}}
        elif pod.end != End.NEVER_RAN:
            state = {"terminated": _terminated(pod)}
    started = pod.stage == Stage.RUNNING
    found["containerStatuses"] = [{"name": names.WORKER, "state": state, "started": started, "ready": started}]
    return found


def _terminated(pod: Pod) -> dict[str, Any]:
    code = _CODES[End(pod.end)]
    reason = "OOMKilled" if pod.end == End.OOM else ("Completed" if code == 0 else "Error")
    ended: dict[str, Any] = {"exitCode": code, "reason": reason, "finishedAt": _at(pod.ended)}
    if pod.began >= 0:
        ended["startedAt"] = _at(pod.began)
    if pod.said >= 0:
        ended["message"] = json.dumps({"checkpoint": checkpoint_words(pod.said, pod.ended, NO_TIME)})
    return ended


def checkpoint_words(step: int, age: int, requested: int) -> dict[str, Any]:
    """A checkpoint as a learner tells of it."""
    return {
        "state": "Valid",
        "path": CHECKPOINT_URI,
        "step": 10 * step,
        "digest": "ab",
        "written_unix": NOW - age,
        "requested_unix": NOW - requested if requested >= 0 else 0,
    }


def _condition(type: str, status: str, age: int, reason: str = "", message: str = "") -> dict[str, Any]:
    return {"type": type, "status": status, "reason": reason, "message": message, "lastTransitionTime": _at(age)}


def _at(age: int) -> str:
    return rfc3339(NOW - max(age, 0))

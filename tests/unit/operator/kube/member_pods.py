"""Pods of a learner in every state that a cluster brings them into, in the API server's own form."""

from collections.abc import Container
from datetime import UTC, datetime
from typing import Any

from rljob_operator.core.member import Member
from rljob_operator.kube.job.members import shown
from rljob_operator.kube.render import names

CREATED = datetime(2026, 11, 23, 12, 0, tzinfo=UTC).timestamp()


def at(seconds: float) -> str:
    """So long after the pod's creation, as the API server writes it."""
    return datetime.fromtimestamp(CREATED + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(
    member: str = "learner",
    *,
    uid: str = "uid-1",
    created: float = 0.0,
    node: str = "node-1",
    deleted: tuple[float, int] | None = None,
    annotations: tuple[str, ...] = (),
    **status: Any,
) -> dict[str, Any]:
    """``deleted``: (when it was asked to end, its grace period)."""
    metadata: dict[str, Any] = {
        "name": f"pong-{member}-{uid}",
        "namespace": "team",
        "uid": uid,
        "resourceVersion": "7",
        "creationTimestamp": at(created),
        "labels": names.member_labels("pong", member),
        "annotations": {f"rljob.dev/{name}": at(0) for name in annotations},
    }
    if deleted is not None:
        metadata |= {"deletionTimestamp": at(sum(deleted)), "deletionGracePeriodSeconds": deleted[1]}
    spec = {"hostname": member, **({"nodeName": node} if node else {})}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending", **status}}


def member(found: dict[str, Any], now: float, were_up: Container[str] = ()) -> Member:
    """The member whose pod it is."""
    return shown(found, found["spec"]["hostname"], now, were_up)


def condition(type: str, status: str = "True", when: float = 1.0, **fields: str) -> dict[str, Any]:
    return {"type": type, "status": status, "lastTransitionTime": at(when), **fields}


def disruption(reason: str, message: str = "") -> dict[str, Any]:
    return condition("DisruptionTarget", reason=reason, message=message, when=50.0)


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return container({"waiting": {"reason": reason, "message": message}})


def running(started: bool = True, ready: bool = True) -> dict[str, Any]:
    return {**container({"running": {"startedAt": at(2)}}), "started": started, "ready": ready}


def ended(code: int, reason: str = "Error", message: str = "", when: float | None = 60.0) -> dict[str, Any]:
    times = (
        {"startedAt": at(2), "finishedAt": at(when)} if when is not None else {"startedAt": None, "finishedAt": None}
    )
    return container({"terminated": {"exitCode": code, "reason": reason, "message": message, **times}})


def container(state: dict[str, Any], name: str = "worker") -> dict[str, Any]:
    return {"name": name, "ready": False, "started": False, "restartCount": 0, "state": state}


def named(name: str, status: dict[str, Any]) -> dict[str, Any]:
    """The same of another container."""
    return {**status, "name": name}

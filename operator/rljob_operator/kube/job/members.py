"""From the pods of a job to its members: which pod is a member now, where it is in its life, and why it ended. Pure.

A pod is a mapping in the API server's own form, trimmed or not. What is not in it is not known, and never made up.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

from rljob.api.conditions import Reason
from rljob.api.timestamps import parse_rfc3339

from rljob_operator.core.member import Member, Phase, Role
from rljob_operator.kube.render import names

Pod = Mapping[str, Any]

NODE_LOST_SECONDS: Final = 15.0
"""A pod that is still there so long after its whole grace period has a node that does not answer: nobody will end it."""

_IMAGE_PROBLEMS: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_OWN_FAULT: Final = ("exceeds the limit", "exceeds the total limit", "exceeded its local ephemeral storage limit")
"""Words of a kubelet that evicts a pod for what the pod itself did: it has filled a volume or written beyond its limit. A node
that is low on disk space names ephemeral-storage, too: that is the node's trouble, whoever has written most."""

_REFUSED_BY_NODE: Final = (
    "OutOf",
    "UnexpectedAdmissionError",
    "NodeAffinity",
    "NodeName",
    "NodePorts",
    "TaintToleration",
)
"""How the reasons begin with which a kubelet refuses a pod that the scheduler gave it: its view of the node was a moment old."""


def members(pods: Iterable[Pod], now_seconds: float, were_up: Container[str] = ()) -> tuple[Member, ...]:
    """The members that have a pod, in the order of roles and numbers. ``were_up``: uids of pods that somebody has seen up."""
    found = [member(pod, now_seconds, were_up) for pod in current(pods).values()]
    order = {role: index for index, role in enumerate(Role)}
    return tuple(sorted(found, key=lambda each: (order[each.role], names.number(each.name))))


def current(pods: Iterable[Pod]) -> dict[str, Pod]:
    """Of each member its pod: the newest one that nobody has asked to go, or else the newest."""
    found: dict[str, Pod] = {}
    for pod in pods:
        name = member_of(pod)
        if name is not None and (name not in found or _precedes(pod, found[name])):
            found[name] = pod
    return found


def former(pods: Iterable[Pod]) -> list[Pod]:
    """Pods that are no member's any more: another one has taken their place."""
    known = list(pods)
    taken = {pod["metadata"]["uid"] for pod in current(known).values()}
    return [pod for pod in known if member_of(pod) is not None and pod["metadata"]["uid"] not in taken]


def member_of(pod: Pod) -> str | None:
    """The member that a pod is or was; None for one without the label, or with one that no member can have."""
    name = (pod["metadata"].get("labels") or {}).get(names.MEMBER_LABEL, "")
    try:
        Role.of(name)
    except ValueError:
        return None
    return str(name)


def member(pod: Pod, now_seconds: float, were_up: Container[str] = ()) -> Member:
    """One member as its pod shows it. Raises ValueError for a pod without a member's label."""
    name = member_of(pod)
    if name is None:
        raise ValueError(f"pod {pod['metadata']['name']} is no member's")
    about, status = pod["metadata"], pod.get("status") or {}
    worker = _container_status(status, names.WORKER)
    phase, since = _phase(pod, worker, now_seconds)
    known: dict[str, Any] = {
        "incarnation": about["uid"],
        "pod_name": about["name"],
        "node_name": (pod.get("spec") or {}).get("nodeName", ""),
        "pod_conditions": tuple((each["type"], each["status"]) for each in status.get("conditions") or ()),
        "asked": names.ASKED_ANNOTATION in (about.get("annotations") or {}),
        "hung": names.HUNG_ANNOTATION in (about.get("annotations") or {}),
        "deleted": about.get("deletionTimestamp") is not None,
        "ready_seconds": _was_up(pod, worker, were_up) if phase is Phase.EXITED else _up_since(worker),
        "leaving_node": phase in (Phase.STARTING, Phase.READY) and _disruption(status) is not None,
    }
    if phase is Phase.STARTING:
        known["waiting"], known["waiting_message"] = _waiting(status)
    if phase is Phase.EXITED:
        known |= _end(pod, worker)
    return Member(name, Role.of(name), phase, since, **known)


def _phase(pod: Pod, worker: Mapping[str, Any], now: float) -> tuple[Phase, float]:
    """(phase, since when)."""
    about, status = pod["metadata"], pod.get("status") or {}
    created = _seconds(about.get("creationTimestamp")) or now
    terminated = (worker.get("state") or {}).get("terminated")
    deleted = _seconds(about.get("deletionTimestamp"))
    if terminated is not None:
        return Phase.EXITED, _seconds(terminated.get("finishedAt")) or _transition(
            status, "Ready"
        ) or deleted or created
    if status.get("phase") in ("Failed", "Succeeded"):  # evicted, or refused by its node, before its container ran
        return Phase.EXITED, _transition(status, "Ready") or deleted or created
    if deleted is not None:
        if not (pod.get("spec") or {}).get("nodeName"):
            return Phase.EXITED, deleted
        if now > deleted + NODE_LOST_SECONDS:  # deletionTimestamp is the end of the grace period
            return Phase.EXITED, deleted
        return Phase.DRAINING, _asked_to_end(pod) or deleted
    up = _up_since(worker)
    if up is not None:
        return Phase.READY, up
    return Phase.STARTING, created


def _up_since(worker: Mapping[str, Any]) -> float | None:
    """When the container's startup probe had passed, as nearly as one can tell: when it began to run; None where it has not.

    Not the Ready condition: a learner is not ready for requests until experience has come, which no actor makes before the
    learner is up; and a probe that fails once makes no member start anew. A startup probe passes once in a container's life.
    """
    if not worker.get("started"):
        return None
    return _seconds(((worker.get("state") or {}).get("running") or {}).get("startedAt"))


def _was_up(pod: Pod, worker: Mapping[str, Any], were_up: Container[str]) -> float | None:
    """Of an ended life: when it came up; None where it never did, as far as anybody saw.

    The pod itself does not tell any more, but for one that has been ready for requests: its condition changed after it began.
    """
    began = _seconds(((worker.get("state") or {}).get("terminated") or {}).get("startedAt"))
    if began is None:
        return None
    changed = _transition(pod.get("status") or {}, "Ready")
    ended = _seconds(((worker.get("state") or {}).get("terminated") or {}).get("finishedAt"))
    was_ready = changed is not None and ended is not None and began + 1.0 < changed < ended - 1.0
    return began if was_ready or pod["metadata"]["uid"] in were_up else None


def _waiting(status: Mapping[str, Any]) -> tuple[Reason | None, str]:
    """Why a pod does not come up, as far as one can be told."""
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return Reason.UNSCHEDULABLE, str(scheduled.get("message", ""))
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or ():
            waiting = (container.get("state") or {}).get("waiting") or {}
            reason, message = str(waiting.get("reason", "")), str(waiting.get("message", ""))
            if reason in _IMAGE_PROBLEMS:
                return Reason.IMAGE_PULL_FAILED, message or reason
            if message and reason not in ("ContainerCreating", "PodInitializing"):
                return None, f"{reason}: {message}"
    return None, ""


def _end(pod: Pod, worker: Mapping[str, Any]) -> dict[str, Any]:
    """How and why it ended."""
    status = pod.get("status") or {}
    terminated = (worker.get("state") or {}).get("terminated") or {}
    words = [str(terminated.get("message", "")).strip()]
    reason = str(terminated.get("reason", ""))
    if reason and reason not in ("Completed", "Error"):
        words.append(reason)
    if status.get("message"):
        words.append(str(status["message"]))
    exit_code = terminated.get("exitCode")
    return {
        "exit_code": int(exit_code) if isinstance(exit_code, int) else None,
        "last_words": "; ".join(word for word in words if word),
        "disrupted": _disrupted(pod, terminated),
    }


def _disrupted(pod: Pod, terminated: Mapping[str, Any]) -> str:
    """Why its surroundings took the pod away; empty where it ended by itself, or brought its eviction about."""
    status = pod.get("status") or {}
    if terminated.get("reason") == "OOMKilled":
        return ""
    told = f"{status.get('message', '')} {terminated.get('message', '')}".lower()
    disruption = _disruption(status)
    if disruption is not None:
        own_fault = disruption.get("reason") == "TerminationByKubelet" and any(word in told for word in _OWN_FAULT)
        return "" if own_fault else str(disruption.get("reason") or "DisruptionTarget")
    reason = str(status.get("reason", ""))
    if reason in ("NodeLost", "NodeShutdown", "Terminated") or (not terminated and reason.startswith(_REFUSED_BY_NODE)):
        return reason
    asked_to_end = _asked_to_end(pod)
    if asked_to_end is None:
        return ""
    if not terminated:
        return "NodeLost" if (pod.get("spec") or {}).get("nodeName") else "Deleted"
    ended = _seconds(terminated.get("finishedAt"))
    if ended is not None and ended < asked_to_end:
        return ""  # it had ended by itself when somebody deleted what was left of it
    return "" if names.ASKED_ANNOTATION in (pod["metadata"].get("annotations") or {}) else "Deleted"


def _asked_to_end(pod: Pod) -> float | None:
    """When the pod was deleted, by whomever; None where it was not. `deletionTimestamp` is the end of its grace period."""
    about = pod["metadata"]
    deleted = _seconds(about.get("deletionTimestamp"))
    return None if deleted is None else deleted - float(about.get("deletionGracePeriodSeconds") or 0.0)


def _disruption(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = _condition(status, "DisruptionTarget")
    return found if found.get("status") == "True" else None


def _container_status(status: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return next((each for each in status.get("containerStatuses") or () if each.get("name") == name), {})


def _condition(status: Mapping[str, Any], type: str) -> Mapping[str, Any]:
    return next((each for each in status.get("conditions") or () if each.get("type") == type), {})


def _transition(status: Mapping[str, Any], type: str) -> float | None:
    return _seconds(_condition(status, type).get("lastTransitionTime"))


def _precedes(pod: Pod, other: Pod) -> bool:
    """Whether ``pod`` rather than ``other`` is the member of both."""
    return _age(pod) > _age(other)


def _age(pod: Pod) -> tuple[bool, str, str]:
    about = pod["metadata"]
    return "deletionTimestamp" not in about, str(about.get("creationTimestamp", "")), about["name"]


def _seconds(text: Any) -> float | None:
    """Unix seconds of an API server's time; None where there is none."""
    return parse_rfc3339(text) if isinstance(text, str) and text else None

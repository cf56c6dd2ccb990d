"""From the pods of a job to its members: which pod is a member now, where it is in its life, and why it ended. Pure.

A pod is a mapping in the API server's own form, trimmed or not. What is not in it is unknown, and never guessed.

The last words of a pod's worker, as its container's termination message has them.
"""

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final

from rljob.api.conditions import Reason
from rljob.api.status_model import parse_rfc3339

from rljob_operator.core.member import Member, Phase, Role, last_line, number
from rljob_operator.kube.render import names
from rljob_operator.kube.watch.pods import is_gone


def parsed(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document that the pod's worker left at an orderly end; empty where it left none, or something else."""
    words = _terminated(_container_status(pod.get("status") or {}, names.WORKER)).get("message") or ""
    try:
        found = json.loads(words)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


Pod = Mapping[str, Any]

NODE_LOST_SECONDS: Final = 15.0
"""A pod that is still there so long after its whole grace period has a node that does not answer: no kubelet will end it."""

UNSCHEDULED_SECONDS: Final = 10.0
"""A scheduler tells soon that it finds no node for a pod. Where it does not, it waits for a volume to be made, or there is no
such scheduler."""

_IMAGE_PROBLEMS: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_ENDED: Final = ("Failed", "Succeeded")
_OUT_OF_SIGHT: Final = ("ContainerStatusUnknown", "Unknown")
"""Reasons of a kubelet for the end of a container that it no longer finds, as after its node has started anew."""
_TOLD_TO_END: Final = (0, 130, 137, 143)
"""Exit codes of a container that was told to end: it left in good order, or was killed when its time was over."""
_KILLED_SECONDS: Final = 5
"""When the time of a pod is over all its containers are killed at once, and its phase tells so soon after."""
_OUT_OF_MEMORY: Final = (
    "OOMKilled: container {} needed more memory than it may have; raise requests and limits of memory in its resources"
)

NODE_LOST: Final = "NodeLost"
"""Why a pod that was deleted is there still, long after its grace period."""
UNSEEN: Final = "EndNotSeen"
"""Why a pod that has ended, and does not tell how, is taken for disrupted."""

_OWN_FAULT: Final = ("exceeds the limit", "exceeds the total limit", "exceeded its local ephemeral storage limit")
"""Parts of the message of a kubelet that evicts a pod for what the pod itself did: it has filled a volume or written beyond its
limit. A node that is low on disk space names ephemeral-storage, too: that is the node's trouble, whichever pod has written
most."""


def members(pods: Iterable[Pod], now_seconds: float, were_up: Container[str] = ()) -> tuple[Member, ...]:
    """The members that have a pod, in the order of roles and numbers. ``were_up``: uids of pods that were seen up."""
    found = [shown(pod, name, now_seconds, were_up) for name, pod in current(pods).items()]
    order = {role: index for index, role in enumerate(Role)}
    return tuple(sorted(found, key=lambda each: (order[each.role], number(each.name))))


def current(pods: Iterable[Pod]) -> dict[str, Pod]:
    """Each member's pod: the newest one that is there and was not asked to go, or else the newest."""
    found: dict[str, Pod] = {}
    for pod in pods:
        name = member_of(pod)
        if name is not None and (name not in found or _age(pod) > _age(found[name])):
            found[name] = pod
    return found


def former(pods: Iterable[Pod]) -> list[Pod]:
    """Pods whose place another pod of the same member has taken."""
    known = list(pods)
    taken = {pod["metadata"]["uid"] for pod in current(known).values()}
    return [pod for pod in known if member_of(pod) is not None and pod["metadata"]["uid"] not in taken]


def member_of(pod: Pod) -> str | None:
    """The member that a pod is or was, by its host name, which nobody can change; None for one that is no member's."""
    name = (pod.get("spec") or {}).get("hostname", "")
    try:
        Role.of(name)
    except ValueError:
        return None
    return str(name)


def shown(pod: Pod, name: str, now_seconds: float, were_up: Container[str] = ()) -> Member:
    """The member ``name`` as its pod shows it; a pod that is no member's can be read in the same way."""
    about, status = pod["metadata"], pod.get("status") or {}
    worker = _container_status(status, names.WORKER)
    phase, since = _phase(pod, worker, now_seconds)
    known: dict[str, Any] = {
        "incarnation": about["uid"],
        "pod_name": about["name"],
        "node_name": (pod.get("spec") or {}).get("nodeName", ""),
        "placed": bool((pod.get("spec") or {}).get("nodeName")),
        "pod_conditions": tuple((each["type"], each["status"]) for each in status.get("conditions") or ()),
        "asked": names.ASKED_ANNOTATION in (about.get("annotations") or {}),
        "deleted": about.get("deletionTimestamp") is not None or is_gone(pod),
        "ready_seconds": _was_up(pod, worker, were_up) if phase is Phase.EXITED else _up_since(worker),
        "leaving_node": phase in (Phase.STARTING, Phase.READY) and bool(_disruption(status)),
    }
    if phase is Phase.STARTING:
        known["waiting"], known["waiting_message"] = _waiting(pod.get("spec") or {}, status, now_seconds - since)
    if phase is Phase.READY and _condition(status, "Ready").get("status") == "False":
        known["unready_seconds"] = _transition(status, "Ready")
        known["waiting_message"] = _waiting({}, status, 0.0)[1] or _condition(status, "Ready").get("message", "")
    if phase is Phase.EXITED:
        known |= _end(pod, worker)
    return Member(name, Role.of(name), phase, since, **known)


def _phase(pod: Pod, worker: Mapping[str, Any], now: float) -> tuple[Phase, float]:
    """(phase, since when)."""
    about, status = pod["metadata"], pod.get("status") or {}
    created = _seconds(about.get("creationTimestamp")) or now
    terminated = _terminated(worker)
    deleted = _seconds(about.get("deletionTimestamp"))
    if terminated:
        ended = _seconds(terminated.get("finishedAt")) or _transition(status, "Ready") or deleted or created
        return Phase.DRAINING if _is_going(pod, terminated, now - ended) else Phase.EXITED, ended
    if status.get("phase") in _ENDED:  # evicted, or refused by its node, before its container ran
        return Phase.EXITED, _transition(status, "Ready") or deleted or created
    if deleted is not None:
        # deletionTimestamp is the end of the grace period
        if not (pod.get("spec") or {}).get("nodeName") or now > deleted + NODE_LOST_SECONDS:
            return Phase.EXITED, deleted
        return Phase.DRAINING, deleted - float(about.get("deletionGracePeriodSeconds") or 0.0)
    up = _up_since(worker)
    if up is not None:
        return Phase.READY, up
    return Phase.STARTING, created


def placed_since(pod: Pod) -> float:
    """When a pod that has a node was given it, or was made, where that is not said."""
    scheduled = _transition(pod.get("status") or {}, "PodScheduled")
    return scheduled or parse_rfc3339(pod["metadata"]["creationTimestamp"])


def outlives_its_worker(pod: Pod) -> bool:
    """Whether a pod whose worker has ended runs on, for a container beside it that does not end by itself."""
    status = pod.get("status") or {}
    ended = _terminated(_container_status(status, names.WORKER))
    return bool(ended) and status.get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")


def _is_going(pod: Pod, terminated: Mapping[str, Any], ended_for: float) -> bool:
    """Whether a pod whose worker was told to end is still going, and it is not known yet what told it to.

    A kubelet that takes a pod away (pressure, its node's shutdown, the pod's own deadline) says so with the pod's phase, which it
    writes when the last container has ended.
    """
    status, spec, code = pod.get("status") or {}, pod.get("spec") or {}, terminated.get("exitCode")
    longest = _KILLED_SECONDS if code == 137 else spec.get("terminationGracePeriodSeconds") or 0
    if status.get("phase") in _ENDED or pod["metadata"].get("deletionTimestamp") or ended_for > longest:
        return False
    # A worker that leaves as it was told to says so with 143: 0 is an end of its own.
    told = code != 0 and code in _TOLD_TO_END and terminated.get("reason") != "OOMKilled"
    return told and any("running" in (each.get("state") or {}) for each in _containers(status))


def _up_since(worker: Mapping[str, Any]) -> float | None:
    """When the container's startup probe had passed, as nearly as is known: when it began to run; None where it has not.

    Not the Ready condition: a learner is not ready for requests until experience has come, which no actor makes before the
    learner is up; and a probe that fails once makes no member start anew. A startup probe passes once in a container's life.
    """
    if not worker.get("started"):
        return None
    return _seconds(((worker.get("state") or {}).get("running") or {}).get("startedAt"))


def _was_up(pod: Pod, worker: Mapping[str, Any], were_up: Container[str]) -> float | None:
    """When an ended life came up; None where it was never seen up.

    The pod itself does not tell any more, but for one that has been ready for requests: its condition changed after it began.
    """
    began = _seconds(_terminated(worker).get("startedAt"))
    if began is None:
        return None
    changed = _transition(pod.get("status") or {}, "Ready")
    ended = _seconds(_terminated(worker).get("finishedAt"))
    was_ready = changed is not None and ended is not None and began + 1.0 < changed < ended - 1.0
    return began if was_ready or pod["metadata"]["uid"] in were_up else None


def _waiting(spec: Mapping[str, Any], status: Mapping[str, Any], waited: float) -> tuple[Reason | None, str]:
    """Why a pod does not come up, as far as is known. ``waited``: seconds since it was made."""
    if gates := ", ".join(str(each.get("name")) for each in spec.get("schedulingGates") or ()):
        return Reason.UNSCHEDULABLE, f"no node is looked for until its scheduling gates are removed: {gates}"
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return Reason.UNSCHEDULABLE, str(scheduled.get("message") or scheduled["reason"])
    for container in _containers(status):
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason, message = str(waiting.get("reason", "")), str(waiting.get("message", ""))
        if reason in _IMAGE_PROBLEMS:
            return Reason.IMAGE_PULL_FAILED, message or reason
        if message and reason not in ("ContainerCreating", "PodInitializing"):
            last = _words(container, ((container.get("lastState") or {}).get("terminated")) or {})
            return None, f"{reason}: {last or message}"
    if not spec.get("nodeName") and not scheduled and waited >= UNSCHEDULED_SECONDS:
        return None, "no scheduler has said anything of it"
    return None, ""


def _end(pod: Pod, worker: Mapping[str, Any]) -> dict[str, Any]:
    """How and why it ended."""
    status = pod.get("status") or {}
    container = _culprit(status, worker)
    terminated = _terminated(container)
    disrupted, exit_code = _disrupted(pod, terminated), terminated.get("exitCode")
    reason, told = str(status.get("reason", "")), status.get("message") or _disruption(status).get("message")
    as_told = bool(disrupted) and exit_code in _TOLD_TO_END  # then the end of its log has no reason to tell
    own = "" if as_told or parsed(pod) else _words(container, terminated)
    said = (reason if reason != disrupted else "", told, own)
    return {
        "exit_code": int(exit_code) if isinstance(exit_code, int) else None,
        "last_words": "; ".join(str(words) for words in said if words),
        "disrupted": disrupted,
    }


def _culprit(status: Mapping[str, Any], worker: Mapping[str, Any]) -> Mapping[str, Any]:
    """The container whose end is the pod's: the worker, or where that has not failed the first other one that has.

    Those beside a worker that has ended are told to end by their kubelet.
    """
    fine = _TOLD_TO_END if _terminated(worker) else (0,)
    beside = (each for each in _containers(status) if _terminated(each).get("exitCode", 0) not in fine)
    return worker if _terminated(worker).get("exitCode") else next(beside, worker)


def _words(container: Mapping[str, Any], terminated: Mapping[str, Any]) -> str:
    """The message of a container's end; for one beside the worker with its name and code."""
    name, code, reason = str(container.get("name", "")), terminated.get("exitCode"), terminated.get("reason")
    own = "" if name == names.WORKER or code is None else f"container {name} ended with exit code {code}"
    kind = _OUT_OF_MEMORY.format(name) if reason == "OOMKilled" else reason
    message = last_line(str(terminated.get("message", "")))
    return ": ".join(str(each) for each in (own, kind if kind not in ("Completed", "Error") else "", message) if each)


def _disrupted(pod: Pod, terminated: Mapping[str, Any]) -> str:
    """Why the cluster took the pod away; empty where it ended by itself, or caused its own eviction.

    A pod has a reason of its own only where Kubernetes has ended or refused it. When a pod was deleted can't be told from it: its
    kubelet moves the time as soon as its containers have ended.
    """
    about, status = pod["metadata"], pod.get("status") or {}
    if names.ASKED_ANNOTATION in (about.get("annotations") or {}) or terminated.get("reason") == "OOMKilled":
        return ""
    reason = str(_disruption(status).get("reason") or status.get("reason") or "")
    if reason:
        told = str(status.get("message", "")).lower()
        own_fault = reason in ("TerminationByKubelet", "Evicted") and any(word in told for word in _OWN_FAULT)
        return "" if own_fault else reason
    if terminated.get("reason") in _OUT_OF_SIGHT:
        return str(terminated["reason"])
    if about.get("deletionTimestamp") is None:
        return "" if terminated else UNSEEN
    ended = terminated or status.get("phase") in _ENDED or not (pod.get("spec") or {}).get("nodeName")
    return "Deleted" if ended else NODE_LOST


def _disruption(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """The condition by which Kubernetes says that it takes the pod away; empty where it does not."""
    found = _condition(status, "DisruptionTarget")
    return found if found.get("status") == "True" else {}


def _containers(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The statuses of all containers, those that come first in front."""
    for kind in ("initContainerStatuses", "containerStatuses"):
        yield from status.get(kind) or ()


def _terminated(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """How a container has ended; empty where it has not."""
    return (container.get("state") or {}).get("terminated") or {}


def _container_status(status: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return next((each for each in status.get("containerStatuses") or () if each.get("name") == name), {})


def _condition(status: Mapping[str, Any], type: str) -> Mapping[str, Any]:
    return next((each for each in status.get("conditions") or () if each.get("type") == type), {})


def _transition(status: Mapping[str, Any], type: str) -> float | None:
    return _seconds(_condition(status, type).get("lastTransitionTime"))


def _age(pod: Pod) -> tuple[bool, str, bool, str]:
    """Times of the API server are whole seconds: of two pods of one second the one that has gone was the first."""
    about, gone = pod["metadata"], is_gone(pod)
    stays = not gone and "deletionTimestamp" not in about
    return stays, str(about.get("creationTimestamp", "")), not gone, about["name"]


def _seconds(text: Any) -> float | None:
    """Unix seconds of an API server's time; None where there is none."""
    return parse_rfc3339(text) if isinstance(text, str) and text else None

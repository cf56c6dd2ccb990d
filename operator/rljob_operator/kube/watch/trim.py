"""What the controller keeps of a pod: a fraction of what the API server sends, in the same shape.

A cache of thousands of pods lives by this. Strings that many pods share are kept once, lists and maps that say nothing are left
out, and what is kept is never changed afterwards, so that pods may share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from sys import intern
from typing import Any

from rljob_operator.kube.apiserver.resources import Object
from rljob_operator.kube.render import names

LONGEST_TEXT = 1024
LONGEST_LAST_WORDS = 4096
"""What a kubelet takes of a termination message."""

_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
_OWNER = ("apiVersion", "kind", "name", "uid", "controller")
_SPEC = ("nodeName", "hostname", "terminationGracePeriodSeconds")
_STATUS = ("phase", "reason", "message", "podIP", "startTime")
_CONDITION = ("type", "status", "reason", "message", "lastTransitionTime")
_CONTAINER = ("name", "ready", "started", "restartCount")
_WAITING = ("reason", "message")
_RUNNING = ("startedAt",)
_TERMINATED = ("exitCode", "signal", "reason", "message", "startedAt", "finishedAt")
_OF_ONE_POD = frozenset(
    {"uid", "resourceVersion", "message", "podIP"} | {name for name in _METADATA if name.endswith("Timestamp")}
)
"""Values that no other pod has: interning them would only cost."""


def trim(pod: Mapping[str, Any]) -> Object:
    """The part of a pod that is kept. Whatever is missing in the pod is missing in it, too."""
    about, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    metadata = _some(about, _METADATA)
    grace = about.get("deletionGracePeriodSeconds")
    if grace is not None:
        metadata["deletionGracePeriodSeconds"] = grace
    _put(metadata, "labels", {intern(name): intern(value) for name, value in (about.get("labels") or {}).items()})
    ours = (about.get("annotations") or {}).items()
    _put(metadata, "annotations", {intern(name): value for name, value in ours if name.startswith(names.OURS)})
    _put(metadata, "finalizers", [intern(name) for name in about.get("finalizers") or ()])
    _put(metadata, "ownerReferences", [_some(owner, _OWNER, ()) for owner in about.get("ownerReferences") or ()])
    state = _some(status, _STATUS)
    _put(state, "conditions", [_some(condition, _CONDITION) for condition in status.get("conditions") or ()])
    for name in ("containerStatuses", "initContainerStatuses"):
        _put(state, name, [_container(each) for each in status.get(name) or ()])
    trimmed: Object = {"metadata": metadata}
    kept = _some(spec, _SPEC)
    _put(kept, "schedulingGates", [_some(gate, ("name",)) for gate in spec.get("schedulingGates") or ()])
    _put(trimmed, "spec", kept)
    _put(trimmed, "status", state)
    return trimmed


def same_but_for_the_version(one: Object, other: Object) -> bool:
    """Whether nothing has changed that is kept."""
    if one.get("status") != other.get("status") or one.get("spec") != other.get("spec"):
        return False
    first, second = one["metadata"], other["metadata"]
    return {**first, "resourceVersion": ""} == {**second, "resourceVersion": ""}


def _container(status: Mapping[str, Any]) -> Object:
    kept = _some(status, _CONTAINER)
    for name in ("state", "lastState"):
        _put(kept, name, _state(status.get(name) or {}))
    return kept


def _state(state: Mapping[str, Any]) -> Object:
    kept: Object = {}
    if state.get("waiting") is not None:
        kept["waiting"] = _some(state["waiting"], _WAITING)
    if state.get("running") is not None:
        kept["running"] = _some(state["running"], _RUNNING)
    if state.get("terminated") is not None:
        kept["terminated"] = _some(state["terminated"], _TERMINATED, longest=LONGEST_LAST_WORDS)
    return kept


def _some(
    given: Mapping[str, Any], names: Iterable[str], alone: Iterable[str] = _OF_ONE_POD, longest: int = LONGEST_TEXT
) -> Object:
    """The named fields, those that are there and say something."""
    kept: Object = {}
    for name in names:
        value = given.get(name)
        if value is None or value == "":
            continue
        if isinstance(value, str):
            value = value[:longest] if name in alone else intern(value[:longest])
        kept[name] = value
    return kept


def _put(into: Object, name: str, value: Any) -> None:
    if value:
        into[name] = value

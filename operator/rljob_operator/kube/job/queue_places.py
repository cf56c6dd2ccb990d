"""Where the pods of a job go that Kueue has admitted: which quota an actor uses, and what a ResourceFlavor says of nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rljob_operator.core.member import Role
from rljob_operator.kube.apiserver.resources import Object, Resource
from rljob_operator.kube.job import workload_state as state
from rljob_operator.kube.job.cluster_objects import ClusterObjects
from rljob_operator.kube.job.members import Pod, current, member_of
from rljob_operator.kube.render import names
from rljob_operator.kube.render.workload import WORKLOAD_ANNOTATION, core_name


@dataclass(slots=True)
class QueuePlaces:
    """Of one admitted job.

    Attributes:
        room: Workload -> how many actors more it has quota for.
        changes: (Workload, set of pods) -> what its pods get: labels, annotations, nodeSelector and tolerations.
    """

    room: dict[str, int] = field(default_factory=dict)
    changes: dict[tuple[str, str], list[Mapping[str, Any]]] = field(default_factory=dict)

    def going(self, pods: Sequence[Pod]) -> set[str]:
        """Members whose Workload is admitted no longer: of all actors the first to leave."""
        named = {name: _workload_of(pod) for name, pod in current(pods).items()}
        return {name for name, used in named.items() if used and used not in self.room}

    def placed(self, job: str, pod: Object) -> Object:
        """A new pod with what the flavours that it was given say. Of an actor's it is noted whose quota it uses."""
        used, role = core_name(job), pod["metadata"]["labels"][names.ROLE_LABEL]
        if role == Role.ACTOR:
            used = next((name for name, left in self.room.items() if left > 0), used)
            self.room[used] = self.room.get(used, 0) - 1
            pod = _merged(pod, {"annotations": {WORKLOAD_ANNOTATION: used}})
        for each in self.changes.get((used, role), ()):
            pod = _merged(pod, each)
        return pod


async def places(
    objects: ClusterObjects, workloads: Resource, running: Sequence[Object], pods: Sequence[Pod]
) -> QueuePlaces:
    """Of a job whose admitted Workloads are ``running``, the core first."""
    flavors = replace(workloads, plural="resourceflavors", kind="ResourceFlavor")
    used, found = Counter(users(pods).values()), QueuePlaces()
    for each in running:
        name = each["metadata"]["name"]
        found.room[name] = state.count(each, Role.ACTOR) - used[name]
        for pod_set in (str(role) for role in Role):
            given = [await objects.get(flavors, flavor) for flavor in state.flavors(each, pod_set)]
            of_flavors = [_of_nodes(flavor) for flavor in given if flavor is not None]
            found.changes[name, pod_set] = [*of_flavors, *state.updates(each, pod_set)]
    return found


def _of_nodes(flavor: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = flavor.get("spec") or {}
    return {"nodeSelector": spec.get("nodeLabels") or {}, "tolerations": spec.get("tolerations") or []}


def users(pods: Sequence[Pod]) -> dict[str, str]:
    """Actor that runs or is to run -> the Workload whose quota it uses."""
    return {name: _workload_of(pod) for name, pod in current(pods).items() if _is_actor(pod)}


def _workload_of(pod: Pod) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(WORKLOAD_ANNOTATION, ""))


def _is_actor(pod: Pod) -> bool:
    ended = (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")
    return not ended and Role.of(member_of(pod) or str(Role.LEARNER)) is Role.ACTOR


def _merged(pod: Object, change: Mapping[str, Any]) -> Object:
    """The pod with more labels, annotations, node labels and tolerations; what stands there already, stays."""
    about, spec = dict(pod["metadata"]), dict(pod["spec"])
    for name in ("labels", "annotations"):
        if change.get(name):
            about[name] = {**change[name], **(about.get(name) or {})}
    if change.get("nodeSelector"):
        spec["nodeSelector"] = {**change["nodeSelector"], **(spec.get("nodeSelector") or {})}
    given = spec.get("tolerations") or []
    more = [each for each in change.get("tolerations") or () if each not in given]
    if more:
        spec["tolerations"] = [*given, *more]
    return {**pod, "metadata": about, "spec": spec}

"""What Kueue's queues say of a job: its priority, and where its pods go once it is admitted: which quota an actor uses, and what
a ResourceFlavor says of nodes.

The objects that this goes by have no namespace; the operator reads them and does not watch them.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rljob_operator.core.member import Role
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import Forbidden, NotFound
from rljob_operator.kube.apiserver.resources import FLAVORS, PRIORITY_CLASSES, WORKLOAD_PRIORITIES, Object, Resource
from rljob_operator.kube.job import workload_state as state
from rljob_operator.kube.job.members import Pod, current
from rljob_operator.kube.render import names
from rljob_operator.kube.render.workload import PRIORITY_LABEL, WORKLOAD_ANNOTATION

KNOWN_SECONDS: Final = 15.0
"""What one says is believed for so long, also that it is missing or may not be read."""


class ClusterObjects:
    """What was read of them, by kind and name."""

    def __init__(self, client: Client, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._client, self._monotonic = client, monotonic
        self._known: dict[tuple[str, str], tuple[float, Mapping[str, Any] | None]] = {}

    async def get(self, resource: Resource, name: str) -> Mapping[str, Any] | None:
        """None where it is missing or can't be read: an operator of single namespaces may not."""
        until, found = self._known.get((resource.kind, name), (0.0, None))
        if self._monotonic() < until:
            return found
        try:
            found = await self._client.get(resource, None, name)
        except (NotFound, Forbidden):
            found = None
        self._known[resource.kind, name] = self._monotonic() + KNOWN_SECONDS, found
        return found


@dataclass(slots=True)
class QueuePlaces:
    """The places that the queue has given to one job; of one that is not admitted or does not queue, none.

    Attributes:
        room: Workload -> how many actors more it has quota for.
        changes: (Workload, set of pods) -> what its pods get: labels, annotations, nodeSelector and tolerations.
    """

    room: dict[str, int] = field(default_factory=dict)
    changes: dict[tuple[str, str], list[Mapping[str, Any]]] = field(default_factory=dict)

    def going(self, pods: Sequence[Pod]) -> set[str]:
        """Members whose Workload is admitted no longer: the first actors to leave."""
        named = {name: _workload_of(pod) for name, pod in current(pods).items()}
        return {name for name, used in named.items() if used and used not in self.room}

    def placed(self, job: str, pod: Object) -> Object:
        """A new pod with what its flavours add. An actor's pod is noted to use its Workload's quota."""
        used, role = job, pod["metadata"]["labels"][names.ROLE_LABEL]
        if role == Role.ACTOR and self.room:
            used = next((name for name, left in self.room.items() if left > 0), used)
            self.room[used] = self.room.get(used, 0) - 1
            pod = _merged(pod, {"annotations": {WORKLOAD_ANNOTATION: used}})
        for each in self.changes.get((used, role), ()):
            pod = _merged(pod, each)
        return pod


async def places(objects: ClusterObjects, running: Sequence[Object], pods: Sequence[Pod]) -> QueuePlaces:
    """The places of a job whose admitted Workloads are ``running``, the core first."""
    used, found = Counter(users(pods).values()), QueuePlaces()
    for each in running:
        name = each["metadata"]["name"]
        found.room[name] = state.count(each, Role.ACTOR) - used[name]
        for pod_set in (str(role) for role in Role):
            given = [await objects.get(FLAVORS, flavor) for flavor in state.flavors(each, pod_set)]
            of_flavors = [_of_nodes(flavor) for flavor in given if flavor is not None]
            found.changes[name, pod_set] = [*of_flavors, *state.updates(each, pod_set)]
    return found


def _of_nodes(flavor: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = flavor.get("spec") or {}
    return {"nodeSelector": spec.get("nodeLabels") or {}, "tolerations": spec.get("tolerations") or []}


def users(pods: Sequence[Pod]) -> dict[str, str]:
    """Actor that runs or is to run -> the Workload whose quota it uses."""
    return {
        name: _workload_of(pod)
        for name, pod in current(pods).items()
        if Role.of(name) is Role.ACTOR and (pod.get("status") or {}).get("phase") not in ("Failed", "Succeeded")
    }


def _workload_of(pod: Pod) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(WORKLOAD_ANNOTATION, ""))


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


class PriorityUnknown(Exception):
    """A class that is named is missing or may not be read. ``str()`` is what the job's user is told."""


async def priority_of(
    labels: Mapping[str, str], pod_sets: Sequence[Mapping[str, Any]], objects: ClusterObjects
) -> dict[str, Any]:
    """Fields of a Workload's spec: the priority of the WorkloadPriorityClass that the job's label names, else that of the
    PriorityClass of the first of its pods that have one, else 0. Raises `PriorityUnknown`: Kueue, too, makes no Workload then."""
    resource, name = WORKLOAD_PRIORITIES, labels.get(PRIORITY_LABEL)
    if not name:
        of_pods = (each["template"]["spec"].get("priorityClassName") for each in pod_sets)
        resource, name = PRIORITY_CLASSES, next((each for each in of_pods if each), None)
    if not name:
        return {"priority": 0}
    found = await objects.get(resource, name)
    if found is None:
        raise PriorityUnknown(f"{resource.kind} {name} is missing, or the operator may not read it (docs/kueue.md)")
    named = {"group": resource.group, "kind": resource.kind, "name": name}
    return {"priority": int(found["value"]), "priorityClassRef": named}

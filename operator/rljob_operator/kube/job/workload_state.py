"""What Kueue says of a job, and what it means: what its Workloads say for the core, and what is written back into their status;
how many actors a job asks a queue for, in which blocks; and, once it is admitted, which quota an actor uses, and where pods go.

A job's priority and what a ResourceFlavor says of nodes have no namespace; the operator reads them and does not watch them.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from rljob.api import RLJobSpec
from rljob.api.conditions import ConditionType, Reason
from rljob.api.status import RLJobStatus
from rljob.api.status_model import rfc3339

from rljob_operator.core.member import Member, Role
from rljob_operator.core.observed import Admission
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import Forbidden, NotFound
from rljob_operator.kube.apiserver.resources import FLAVORS, PRIORITY_CLASSES, WORKLOAD_PRIORITIES, Object, Resource
from rljob_operator.kube.job.members import Pod, current
from rljob_operator.kube.job.stored import StoredJob
from rljob_operator.kube.render import names
from rljob_operator.kube.render.others import PRIORITY_LABEL, QUEUE_LABEL, WORKLOAD_ANNOTATION, queue_of

Workload = Mapping[str, Any]

_QUEUED_AGAIN: Final = frozenset({"Preempted", "NodeFailures"})
"""Reasons of an eviction after which a Workload queues again at once; after the others it is Kueue that says when."""


def holds(workload: Workload, type: str) -> bool:
    """Whether its condition of that type is True."""
    return _condition(workload, type).get("status") == "True"


def is_admitted(workload: Workload) -> bool:
    """Whether its pods may run. Between an eviction and the end of its pods a Workload is Admitted and Evicted at once."""
    active = (workload.get("spec") or {}).get("active", True)
    return holds(workload, "Admitted") and not holds(workload, "Evicted") and active


def words(workload: Workload) -> str:
    """Why it is not admitted, as Kueue says it."""
    if (workload.get("spec") or {}).get("active", True) is False:
        return "the Workload was deactivated (spec.active: false)"
    checks = [
        f"{each['name']}: {each.get('message') or each.get('state')}"
        for each in (workload.get("status") or {}).get("admissionChecks") or ()
        if each.get("state") != "Ready"
    ]
    told = [str(_condition(workload, type).get("message") or "") for type in ("Evicted", "QuotaReserved")]
    return "; ".join(dict.fromkeys(each for each in (*told, *checks) if each)) or "Kueue has not said anything yet"


def count(workload: Workload, pod_set: str) -> int:
    """Pods of a set: as many as were admitted, which Kueue may have made fewer, or as many as were asked for."""
    for assigned in _assignments(workload):
        if assigned.get("name") == pod_set and assigned.get("count") is not None:
            return int(assigned["count"])
    return sum(int(each["count"]) for each in workload["spec"]["podSets"] if each["name"] == pod_set)


def flavors(workload: Workload, pod_set: str) -> list[str]:
    """Names of the ResourceFlavors that a set was given, each once."""
    given = [each.get("flavors") or {} for each in _assignments(workload) if each.get("name") == pod_set]
    return list(dict.fromkeys(str(flavor) for each in given for flavor in each.values()))


def updates(workload: Workload, pod_set: str) -> list[Mapping[str, Any]]:
    """What admission checks want of the pods of a set: labels, annotations, node selectors and tolerations."""
    checks = (workload.get("status") or {}).get("admissionChecks") or ()
    return [each for check in checks for each in check.get("podSetUpdates") or () if each.get("name") == pod_set]


def without_quota(workload: Workload, now: float) -> dict[str, Any]:
    """The change of an evicted Workload's status once none of its pods is left: it gives back what it had."""
    evicted = _condition(workload, "Evicted")
    reason, message = str(evicted.get("reason") or "Pending"), str(evicted.get("message") or "")
    said = {
        "QuotaReserved": (False, "Pending", message),
        "Admitted": (False, "NoReservation", "The workload has no reservation"),
        "Requeued": (reason in _QUEUED_AGAIN, reason, message),
    }
    if holds(workload, "PodsReady"):
        said["PodsReady"] = False, "WaitForStart", "Not all pods are ready"
    return _with(workload, said, now) | {"admission": None}


def finished(workload: Workload, succeeded: bool, message: str, now: float) -> dict[str, Any]:
    """The change of its status at the end of its job: Kueue takes the quota back."""
    return _with(workload, {"Finished": (True, "Succeeded" if succeeded else "Failed", message)}, now)


def pods_ready(workload: Workload, now: float) -> dict[str, Any]:
    """The change of its status when its pods are up, which Kueue waits for where its waitForPodsReady is on."""
    return _with(workload, {"PodsReady": (True, "Started", "All pods reached readiness")}, now)


def _assignments(workload: Workload) -> list[Mapping[str, Any]]:
    return list(((workload.get("status") or {}).get("admission") or {}).get("podSetAssignments") or ())


def _condition(workload: Workload, type: str) -> Mapping[str, Any]:
    found = (workload.get("status") or {}).get("conditions") or ()
    return next((each for each in found if each.get("type") == type), {})


def _with(workload: Workload, said: Mapping[str, tuple[bool, str, str]], now: float) -> dict[str, Any]:
    """Its status with some conditions set; the time of one stays where only its message changes."""
    about = {"observedGeneration": workload["metadata"].get("generation", 1)}
    new = [
        {
            **about, "type": type, "status": str(status), "reason": reason, "message": message,
            "lastTransitionTime": before["lastTransitionTime"] if before.get("status") == str(status) else rfc3339(int(now)),
        }
        for type, (status, reason, message) in said.items()
        for before in [_condition(workload, type)]
    ]  # fmt: skip
    kept = [each for each in (workload.get("status") or {}).get("conditions") or () if each["type"] not in said]
    return {"conditions": [*kept, *new]}


def ignored(document: Mapping[str, Any]) -> Admission | None:
    """What an operator that asks no queue says of a job that names one."""
    if not queue_of(document):
        return None
    words = f"the label {QUEUE_LABEL} has no effect: kueue.enabled was not set in the operator's configuration when it started"
    return Admission(True, Reason.NOT_MANAGED, words)


def unknown(stored: StoredJob, members: Sequence[Member], why: str) -> Admission:
    """While the queue's answer is unknown, what runs goes on as it is, and nothing new begins."""
    name = stored.status.admission.workload if stored.status.admission is not None else ""
    if any(member.alive for member in members):
        return as_it_runs(members, why, name)
    return Admission(False, Reason.WAITING_FOR_QUOTA, why, workload=name)


def as_it_runs(members: Sequence[Member], words: str, workload: str) -> Admission:
    """The job keeps its quota for the actors that it has."""
    actors = sum(member.alive and not member.asked for member in members if member.role is Role.ACTOR)
    return Admission(True, Reason.QUOTA_RESERVED, words, workload=workload, max_actors=actors)


def waiting(queue: str, words: str, workload: str = "", reason: Reason = Reason.WAITING_FOR_QUOTA) -> Admission:
    """A job that has no quota, and why."""
    return Admission(False, reason, f"queue {queue}: {words}" if queue else words, workload=workload)


QUOTA: Final = "Quota"
"""``status.autoscaling.limitedBy`` where the queue's quota is the limit."""


@dataclass(frozen=True, slots=True)
class Block:
    """A Workload of actors. ``reserved``: it has quota, whether its actors may run with it or not."""

    number: int
    actors: int
    admitted: bool
    reserved: bool


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be done about the blocks: numbers of those to give back, and (number, actors) of those to ask for."""

    give_back: tuple[int, ...] = ()
    ask_for: tuple[tuple[int, int], ...] = ()


def wanted_actors(spec: RLJobSpec, status: RLJobStatus) -> int:
    """The actors to have quota for: those that its user or an autoscaler asks for, or what the law would want without a quota."""
    scaling, asked = spec.autoscaling, spec.requested_actors
    if scaling.mode != "Internal":
        return asked
    active, found = status.condition(ConditionType.SCALING_ACTIVE), status.autoscaling
    if active is None or active.reason != Reason.VALID_METRIC_FOUND:
        return max(asked, found.desired_replicas)  # nothing better is known yet
    wanted = found.recommended_replicas if found.limited_by == QUOTA else found.desired_replicas
    return max(found.desired_replicas, min(scaling.max_replicas, wanted))


def change(spec: RLJobSpec, first: int, blocks: Iterable[Block], wanted: int, alive: int) -> Change:
    """Blocks for ``wanted`` actors, of whom ``first`` are in the core; ``alive`` of them run, or are about to leave.

    A block that is not needed goes as a whole: at once where it has no quota, else when its actors are gone. A number that moves
    gets full blocks, one at a time; a fixed one gets all it needs.
    """
    known = sorted(blocks, key=lambda each: (not each.reserved, each.number))
    total = first + sum(each.actors for each in known)
    give_back = []
    while known and total - known[-1].actors >= wanted:
        last = known[-1]
        running = first + sum(each.actors for each in known if each.admitted) - last.actors
        if last.reserved and alive > running:
            break
        give_back.append(last.number)
        total -= known.pop().actors
    fixed = spec.autoscaling.mode == "Disabled"
    if not fixed and any(not each.admitted for each in known):
        return Change(tuple(give_back))
    most = wanted if fixed else spec.autoscaling.max_replicas
    size, used = spec.scheduling.kueue.actor_block_size, {each.number for each in known} | set(give_back)
    ask_for: list[tuple[int, int]] = []
    number = 0
    while total < wanted and (fixed or not ask_for):
        while number in used:
            number += 1
        used.add(number)
        ask_for.append((number, min(size, most - total)))
        total += ask_for[-1][1]
    return Change(tuple(give_back), tuple(ask_for))


KNOWN_SECONDS: Final = 15.0
"""What an object of the whole cluster says is believed for so long, also that it is missing or may not be read."""


class ClusterObjects:
    """What was read of flavours and priority classes, by kind and name."""

    def __init__(self, client: Client) -> None:
        self._client, self._known = client, dict[tuple[str, str], tuple[float, Mapping[str, Any]]]()

    async def get(self, resource: Resource, name: str) -> Mapping[str, Any]:
        """Empty where it is missing or can't be read: an operator of single namespaces may not."""
        until, found = self._known.get((resource.kind, name), (0.0, {}))
        if time.monotonic() >= until:
            found = {}
            with suppress(NotFound, Forbidden):
                found = await self._client.get(resource, None, name)
            self._known[resource.kind, name] = time.monotonic() + KNOWN_SECONDS, found
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
        found.room[name] = count(each, Role.ACTOR) - used[name]
        for pod_set in (str(role) for role in Role):
            specs = [(await objects.get(FLAVORS, flavor)).get("spec") or {} for flavor in flavors(each, pod_set)]
            of_nodes = [
                {"nodeSelector": spec.get("nodeLabels"), "tolerations": spec.get("tolerations")} for spec in specs
            ]
            found.changes[name, pod_set] = [*of_nodes, *updates(each, pod_set)]
    return found


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
    for part, name in ((about, "labels"), (about, "annotations"), (spec, "nodeSelector")):
        if change.get(name):
            part[name] = {**change[name], **(part.get(name) or {})}
    given = spec.get("tolerations") or []
    if more := [each for each in change.get("tolerations") or () if each not in given]:
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
    if not found:
        raise PriorityUnknown(f"{resource.kind} {name} is missing, or the operator may not read it (docs/kueue.md)")
    named = {"group": resource.group, "kind": resource.kind, "name": name}
    return {"priority": int(found["value"]), "priorityClassRef": named}

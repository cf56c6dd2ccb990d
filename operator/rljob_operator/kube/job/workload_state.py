"""What a Workload of Kueue says, what it means for the core, and what is written back into its status; and how many actors a job
asks a queue for, in which blocks. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rljob.api import RLJobSpec
from rljob.api.conditions import ConditionType, Reason
from rljob.api.status import RLJobStatus
from rljob.api.status_model import rfc3339

from rljob_operator.core.member import Member, Role
from rljob_operator.core.observed import Admission
from rljob_operator.kube.job.stored import StoredJob
from rljob_operator.kube.render.workload import QUEUE_LABEL, queue_of

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
    said = True, "Started", "All pods reached readiness and the workload is running"
    return _with(workload, {"PodsReady": said}, now)


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
    return Admission(False, reason, in_queue(queue, words), workload=workload)


def in_queue(queue: str, words: str) -> str:
    """The message with the name of its queue."""
    return f"queue {queue}: {words}" if queue else words


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

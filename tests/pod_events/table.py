"""What can happen to a pod of a job, and what comes of it: the one table from which tests are run and docs/pod-events.md is made.

An event is something that a cluster, its user or the program inside does to one pod. What comes of it depends on the role only in
how an end is counted, and on the phase of the job only in whether the pod is replaced.
"""

from dataclasses import dataclass
from enum import StrEnum

ROLES = ("learner", "replay", "inference", "actor", "evaluator")
CORE = ("learner", "replay", "inference")
"""Roles without which a job does not train."""
COUNTED = (*CORE, "evaluator")
"""Roles whose failures count towards ``backoffLimit`` in a job with a ``targetReturn``, as the table's job is."""


class Phase(StrEnum):
    """What the job is about when the event comes."""

    RUNNING = "Running"
    SUSPENDING = "Suspending"


class Outcome(StrEnum):
    """What comes of an event while the job runs."""

    STAYS = "stays"
    """The pod goes on, and nothing is counted."""
    DISRUPTED = "replaced, a disruption"
    """Another pod takes its place; ``restarts.ignored`` grows by one, and no limit is touched."""
    FAILED = "replaced, a failure"
    """Another pod takes its place; the end counts: an actor's towards a crash loop, another role's towards ``backoffLimit``."""
    EITHER = "replaced, as whichever came first"
    """The pod ended by itself in the second in which it was deleted: one end, counted once."""
    WAITS = "waits, and says for what"
    """The pod can't start again; a condition names the reason until what is missing is there."""


@dataclass(frozen=True, slots=True)
class Event:
    """One row.

    Attributes:
        done: how a person, a cluster or a program would do it.
        told: what then stands in ``status.failures`` or in a condition.
        whole_node: it comes to all pods of a node at once.
        needs_faults: parts of a node have to be taken away for it.
        elsewhere: the test that does it, where it can't be done to a pod that is there.
        why_not: why it can't come about; empty for what can.
    """

    name: str
    done: str
    outcome: Outcome
    told: str = ""
    whole_node: bool = False
    needs_faults: bool = False
    elsewhere: str = ""
    why_not: str = ""

    def in_words(self, phase: Phase) -> str:
        """The cell of the page for a phase."""
        if phase is Phase.RUNNING:
            return self.outcome
        if self.outcome is Outcome.STAYS:
            return "leaves with the others"
        return "not replaced"


_D, _F, _S = Outcome.DISRUPTED, Outcome.FAILED, Outcome.STAYS
EVENTS = (
    Event("delete", "`kubectl delete pod`", _D, "Disrupted: Deleted"),
    Event("force delete", "`kubectl delete pod --force --grace-period=0`", _D, "Disrupted: Deleted, or lost"),
    Event("evict", "an Eviction, as a rebalancer makes", _D, "Disrupted: EvictionByEvictionAPI"),
    Event("drain", "`kubectl drain NODE`", _D, "Disrupted: EvictionByEvictionAPI", whole_node=True),
    Event("cordon", "`kubectl cordon NODE`", _S, whole_node=True),
    Event("preempt", "a pod of a higher PriorityClass needs the place", _D, "Disrupted: PreemptionByScheduler"),
    Event(
        "node gone",
        "the node is cut off and deleted, and comes back later",
        _D,
        "Disrupted: DeletionByPodGC, or NodeLost",
        whole_node=True,
        needs_faults=True,
    ),
    Event(
        "node silent",
        "the node's kubelet stops reporting for a minute",
        _S,
        "`NodeLost` meanwhile",
        whole_node=True,
        needs_faults=True,
    ),
    Event("out of memory", "the kernel ends the container", _F, "Killed, 137: OOMKilled"),
    Event(
        "image gone",
        "another pod is needed, and its image can't be pulled",
        Outcome.WAITS,
        "ImagePullFailed",
        elsewhere="tests/e2e/test_refusals.py",
    ),
    Event(
        "image changed",
        "`kubectl set image pod` names one that no registry has",
        _F,
        "Killed, 143, once its grace period is over; the next pod has the job's image",
    ),
    Event("SIGTERM inside", "the worker's process gets a SIGTERM", _F, "Killed, 143"),
    Event("SIGKILL inside", "the worker's process is killed", _F, "Killed, 137"),
    Event("exit 0", "the program ends and says that all is well", _F, "Ended, 0"),
    Event("exit 1", "the program fails", _F, "Error, 1"),
    Event("deadline of the pod", "`activeDeadlineSeconds` of its template is over", _D, "Disrupted: DeadlineExceeded"),
    Event("ended and deleted", "the program ends in the second of a delete", Outcome.EITHER, "Ended, or Disrupted"),
    Event(
        "init container fails",
        "an init container of its template ends with 3 when the pod starts again",
        _F,
        "Error, 3, with the container's name",
    ),
    Event("labels off", "`kubectl label pod` takes them off", _S, "they are put back"),
    Event(
        "owner reference off",
        "`kubectl patch pod` takes it off",
        _D,
        "Disrupted: Disowned; it runs on until it is deleted",
    ),
    Event(
        "claim deleted",
        "`kubectl delete pvc` while the learner runs",
        _S,
        "`CheckpointValid=False/Gone`; a next learner begins at update 0",
        elsewhere="tests/unit/operator/kube/test_newest_checkpoint.py",
    ),
    Event("foreign finalizer", "another's finalizer keeps the deleted pod", _D, "Disrupted: Deleted"),
    Event("sidecar fails", "another container of its template ends with 3", _S),
    Event(
        "container restarted",
        "the kubelet starts the container again",
        _F,
        why_not="a template with another `restartPolicy` than `Never` is refused, since the controller starts pods again and "
        "counts their ends",
    ),
)


def cells() -> list[tuple[Event, str, Phase]]:
    """Every (event, role, phase) that a cluster can be asked about. A node takes all roles on it at once, and so has one cell."""
    return [
        (event, role, phase)
        for event in EVENTS
        for phase in Phase
        for role in (ROLES[:1] if event.whole_node else ROLES)
        if not event.why_not and not event.elsewhere
    ]

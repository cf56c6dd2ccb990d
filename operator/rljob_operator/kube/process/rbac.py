"""What the operator may ask of the API server, as a table: Roles are made from it, and nothing else is granted."""

from dataclasses import dataclass
from typing import Any, Final, Literal

Where = Literal["Jobs", "Operator", "Outside", "Cluster", "Queue", "QueueCluster"]
"""Jobs: in every namespace that the operator looks after. Operator: in its own. Outside: as Jobs, and only where it asks
members through the API server (`rljob operator --reach pods-proxy`). Cluster: what has no namespace; granted to one that looks
after all of them, and to others where ``rbac.clusterReads`` is set. Queue and QueueCluster: as Jobs and Cluster, and only where
``kueue.enabled`` is set."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Verbs on resources of one API group, and what they are for."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str
    where: Where = "Jobs"

    @property
    def rule(self) -> dict[str, Any]:
        """As a rule of a Role."""
        return {"apiGroups": [self.group], "resources": list(self.resources), "verbs": list(self.verbs)}


_RLJOB: Final = "rljob.dev"
_KUEUE: Final = "kueue.x-k8s.io"
_CHILDREN: Final = "to see which of its objects are missing, and which claims are being deleted"

TABLE: Final[tuple[Grant, ...]] = (
    Grant(_RLJOB, ("rljobs",), ("list", "watch"), "the jobs; their spec is only read, except runs of experiments"),
    Grant(_RLJOB, ("rljobs",), ("delete",), "ttlSecondsAfterFinished"),
    Grant(_RLJOB, ("rljobs",), ("create", "patch"), "runs of experiments: to start, to suspend and to resume"),
    Grant(_RLJOB, ("rlexperiments",), ("list", "watch"), "the experiments; their spec is only read"),
    Grant(_RLJOB, ("rlexperiments/status",), ("patch",), "the status of an experiment"),
    Grant(_RLJOB, ("rlexperiments/finalizers",), ("update",), "runs that block its deletion, on clusters that check it"),
    Grant(_RLJOB, ("rljobs/status",), ("patch",), "the status of a job"),
    Grant(_RLJOB, ("rljobs/finalizers",), ("update",), "children that block their job's deletion, on clusters that check it"),
    Grant("", ("pods",), ("get", "list", "watch"), "the state of members, and the owner of a name in use"),
    Grant("", ("pods",), ("create", "patch", "delete"), "to start, mark and end members"),
    Grant("", ("secrets",), ("get", "create"), "keys and token, made once; requests to the learner carry the token"),
    Grant("", ("configmaps", "services"), ("get", "create", "patch"), "the effective job, and the pods' names"),
    Grant("", ("persistentvolumeclaims",), ("get", "create"), "checkpoints and experience; none is ever deleted"),
    Grant("", ("configmaps", "services", "persistentvolumeclaims"), ("list", "watch"), _CHILDREN),
    Grant("networking.k8s.io", ("networkpolicies",), ("list", "watch"), _CHILDREN),
    Grant(
        "networking.k8s.io", ("networkpolicies",), ("get", "create", "patch", "delete"), "who may reach the pods"
    ),
    Grant("batch", ("jobs",), ("create",), "to remove a finished job's data from its user's Redis"),
    Grant("events.k8s.io", ("events",), ("create",), "events"),
    Grant("coordination.k8s.io", ("leases",), ("get", "create", "patch"), "which replica leads", "Operator"),
    Grant("", ("nodes",), ("list", "watch"), "which nodes are lost", "Cluster"),
    Grant("", ("persistentvolumes",), ("get",), "which node a volume can't leave, for a message only", "Cluster"),
    Grant("", ("pods/proxy",), ("get", "create"), "to ask learners and shards through the API server", "Outside"),
    Grant(_KUEUE, ("workloads",), ("get", "list", "watch", "create", "delete"), "to ask Kueue for quota", "Queue"),
    Grant(_KUEUE, ("workloads/status",), ("patch",), "to give quota back", "Queue"),
    Grant(_KUEUE, ("resourceflavors",), ("get",), "the nodes of a queue's pods", "QueueCluster"),
    Grant(_KUEUE, ("workloadpriorityclasses",), ("get",), "the priority of a job in its queue", "QueueCluster"),
    Grant("scheduling.k8s.io", ("priorityclasses",), ("get",), "the same, from its pods' class", "QueueCluster"),
)  # fmt: skip


def rules(*where: Where) -> list[dict[str, Any]]:
    """The rules of those rows, one a row."""
    return [grant.rule for grant in TABLE if grant.where in where]

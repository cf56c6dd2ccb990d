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
_CHILDREN: Final = "which of those that it has made are not there any more, and which claims are on their way out"

TABLE: Final[tuple[Grant, ...]] = (
    Grant(_RLJOB, ("rljobs",), ("list", "watch"), "the jobs; what they want is only read, but for runs of experiments"),
    Grant(_RLJOB, ("rljobs",), ("delete",), "ttlSecondsAfterFinished"),
    Grant(_RLJOB, ("rljobs",), ("create", "patch"), "runs of experiments: to start, to suspend and to resume"),
    Grant(_RLJOB, ("rlexperiments",), ("list", "watch"), "the experiments; what they want is only read"),
    Grant(_RLJOB, ("rlexperiments/status",), ("patch",), "what is known of an experiment"),
    Grant(_RLJOB, ("rlexperiments/finalizers",), ("update",), "runs that block its deletion, where that is checked"),
    Grant(_RLJOB, ("rljobs/status",), ("patch",), "what is known of a job"),
    Grant(_RLJOB, ("rljobs/finalizers",), ("update",), "children that block their job's deletion, where that is checked"),
    Grant("", ("pods",), ("get", "list", "watch"), "how members are, and whose a name is that was taken"),
    Grant("", ("pods",), ("create", "patch", "delete"), "members: to start, to mark as asked or counted, to end"),
    Grant("", ("secrets",), ("get", "create"), "keys and token, made once; the token is sent with requests to the learner"),
    Grant("", ("configmaps", "services"), ("get", "create", "patch"), "the job in force, and the pods' names"),
    Grant("", ("persistentvolumeclaims",), ("get", "create"), "checkpoints and experience; none is ever deleted"),
    Grant("", ("configmaps", "services", "persistentvolumeclaims"), ("list", "watch"), _CHILDREN),
    Grant("networking.k8s.io", ("networkpolicies",), ("list", "watch"), _CHILDREN),
    Grant(
        "networking.k8s.io", ("networkpolicies",), ("get", "create", "patch", "delete"), "who may reach the pods"
    ),
    Grant("batch", ("jobs",), ("create",), "to remove what a job that is over has left in a Redis of its user's"),
    Grant("events.k8s.io", ("events",), ("create", "patch"), "what happened, in series"),
    Grant("coordination.k8s.io", ("leases",), ("get", "create", "patch"), "which replica leads", "Operator"),
    Grant("", ("nodes",), ("get", "list", "watch"), "which nodes are lost", "Cluster"),
    Grant("storage.k8s.io", ("storageclasses",), ("get",), "why a claim gets no volume", "Cluster"),
    Grant("", ("persistentvolumes",), ("get",), "which node a volume can't leave, for the message alone", "Cluster"),
    Grant("", ("pods/proxy",), ("get", "create"), "what learners and shards answer, through the API server", "Outside"),
    Grant(_KUEUE, ("workloads",), ("get", "list", "watch", "create", "delete"), "to ask Kueue for quota", "Queue"),
    Grant(_KUEUE, ("workloads/status",), ("patch",), "to give quota back", "Queue"),
    Grant(_KUEUE, ("resourceflavors",), ("get",), "to which nodes a queue sends pods", "QueueCluster"),
    Grant(_KUEUE, ("workloadpriorityclasses",), ("get",), "before which others a job comes in its queue", "QueueCluster"),
    Grant("scheduling.k8s.io", ("priorityclasses",), ("get",), "the same, where its pods have one", "QueueCluster"),
)  # fmt: skip


def rules(*where: Where) -> list[dict[str, Any]]:
    """The rules of those rows, one a row."""
    return [grant.rule for grant in TABLE if grant.where in where]

"""What a job asks a queue of Kueue for: Workloads, made of the pods that it would have. Pure.

One is the job's core, with the job's name: replay shards, learner, inference servers, evaluator, and the fewest actors that it
may run with. They start all or none. Every other actor is in a block, a Workload of its own, because what a queue has admitted
can't be changed: more actors are another block, fewer give a block back.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from rljob_operator.core.member import Role
from rljob_operator.kube.render import names
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.pod import pod
from rljob_operator.kube.render.settings import Settings

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
"""On an RLJob: the LocalQueue of its namespace that it queues in."""
PRIORITY_LABEL: Final = "kueue.x-k8s.io/priority-class"
"""On an RLJob: the WorkloadPriorityClass that decides its place in the queue."""
ASKED_FOR_ANNOTATION: Final = "rljob.dev/asked-for"
"""On a Workload: a digest of what it asks for, since an API server adds to what it is given."""
WORKLOAD_ANNOTATION: Final = "rljob.dev/workload"
"""On an actor's pod: the Workload whose quota it uses."""

_OF_A_POD: Final = (
    "nodeSelector", "tolerations", "affinity", "priorityClassName", "runtimeClassName", "overhead", "resourceClaims",
    "restartPolicy",
)  # fmt: skip
_OF_A_CONTAINER: Final = ("name", "image", "resources", "restartPolicy")


def queue_of(document: Mapping[str, Any]) -> str:
    """The queue that a stored job names; empty for one that does not queue."""
    return str((document["metadata"].get("labels") or {}).get(QUEUE_LABEL) or "")


def block_name(job: str, number: int) -> str:
    """The Workload of a block of actors. A job's name has no dot, so that no other job's core is called so."""
    return f"{job}.actors-{number}"


def block_number(job: str, name: str) -> int | None:
    """The number of a block of actors; None for any other Workload of the job."""
    number = name.removeprefix(f"{job}.actors-")
    return int(number) if number.isdecimal() else None


def core(owned: Owned, settings: Settings) -> list[dict[str, Any]]:
    """The sets of pods of the job's core. Raises `PodProblem`."""
    scaling, fixed = owned.job.spec.autoscaling, owned.job.spec.actors.replicas
    counts = Counter(map(Role.of, names.first_members(owned.job)))
    counts[Role.ACTOR] = min(scaling.min_replicas, fixed) if scaling.mode == "Disabled" else scaling.min_replicas
    return [pod_set(owned, role, count, settings) for role, count in counts.items() if count]


def pod_set(owned: Owned, role: Role, count: int, settings: Settings) -> dict[str, Any]:
    """``count`` pods of a role, with the fields that a queue uses."""
    numbered = role in (Role.REPLAY, Role.INFERENCE, Role.ACTOR)
    first = owned.job.spec.learner.members[0] if role is Role.LEARNER else f"{role}-0" if numbered else str(role)
    spec = pod(owned, first, "", "", settings)["spec"]
    found = {name: spec[name] for name in _OF_A_POD if name in spec}
    for kind in ("initContainers", "containers"):
        if spec.get(kind):
            found[kind] = [{name: each[name] for name in _OF_A_CONTAINER if name in each} for each in spec[kind]]
    return {"name": str(role), "count": count, "template": {"spec": found}}


def digest(spec: Mapping[str, Any]) -> str:
    """What `ASKED_FOR_ANNOTATION` says of a Workload that asks for ``spec``."""
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]


def workload(owned: Owned, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """The Workload that asks for ``spec``."""
    metadata = {**owned.metadata(name), "annotations": {ASKED_FOR_ANNOTATION: digest(spec)}}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata, "spec": spec}

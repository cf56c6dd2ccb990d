"""The priority of a job in its queue, found as Kueue finds it for the kinds of jobs that it knows itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rljob_operator.kube.apiserver.resources import PRIORITY_CLASSES, Resource
from rljob_operator.kube.job.cluster_objects import ClusterObjects
from rljob_operator.kube.render.workload import PRIORITY_LABEL


@dataclass(frozen=True, slots=True)
class Priority:
    """Fields of a Workload's spec, and why they are not those that were asked for."""

    fields: Mapping[str, Any] = field(default_factory=lambda: {"priority": 0})
    problem: str = ""


async def priority_of(
    labels: Mapping[str, str], pod_sets: Sequence[Mapping[str, Any]], workloads: Resource, objects: ClusterObjects
) -> Priority:
    """That of the WorkloadPriorityClass that the job's label names, else of the PriorityClass of its first pods that have one."""
    resource, name = (
        replace(workloads, plural="workloadpriorityclasses", kind="WorkloadPriorityClass"),
        labels.get(PRIORITY_LABEL),
    )
    if not name:
        of_pods = (each["template"]["spec"].get("priorityClassName") for each in pod_sets)
        resource, name = PRIORITY_CLASSES, next((each for each in of_pods if each), None)
    if not name:
        return Priority()
    found = await objects.get(resource, name)
    if found is None:
        return Priority(
            problem=f"its priority is 0: {resource.kind} {name} is missing, or the operator may not read it"
        )
    named = {"group": resource.group, "kind": resource.kind, "name": name}
    # v1beta1 has other fields for the name, and needs none.
    reference = {} if workloads.version == "v1beta1" else {"priorityClassRef": named}
    return Priority({"priority": int(found["value"]), **reference})

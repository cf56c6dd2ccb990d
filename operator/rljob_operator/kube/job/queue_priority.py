"""The priority of a job in its queue, found as Kueue finds it for the kinds of jobs that it knows itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rljob_operator.kube.apiserver.resources import PRIORITY_CLASSES, Resource
from rljob_operator.kube.job.cluster_objects import ClusterObjects
from rljob_operator.kube.render.workload import PRIORITY_LABEL


class PriorityUnknown(Exception):
    """A class that is named is missing or may not be read. ``str()`` is what the job's user is told."""


async def priority_of(
    labels: Mapping[str, str], pod_sets: Sequence[Mapping[str, Any]], workloads: Resource, objects: ClusterObjects
) -> dict[str, Any]:
    """Fields of a Workload's spec: the priority of the WorkloadPriorityClass that the job's label names, else that of the
    PriorityClass of the first of its pods that have one, else 0. Raises `PriorityUnknown`: Kueue, too, makes no Workload then."""
    resource, name = (
        replace(workloads, plural="workloadpriorityclasses", kind="WorkloadPriorityClass"),
        labels.get(PRIORITY_LABEL),
    )
    if not name:
        of_pods = (each["template"]["spec"].get("priorityClassName") for each in pod_sets)
        resource, name = PRIORITY_CLASSES, next((each for each in of_pods if each), None)
    if not name:
        return {"priority": 0}
    found = await objects.get(resource, name)
    if found is None:
        raise PriorityUnknown(f"{resource.kind} {name} is missing, or the operator may not read it (docs/kueue.md)")
    named = {"group": resource.group, "kind": resource.kind, "name": name}
    # v1beta1 has other fields for the name, and needs none.
    return {"priority": int(found["value"]), **({} if workloads.version == "v1beta1" else {"priorityClassRef": named})}

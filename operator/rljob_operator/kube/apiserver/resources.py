"""The kinds of objects that the operator handles, where an API server has them, and the patches that change them (RFC 7386)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

Object = dict[str, Any]
"""A Kubernetes object as JSON has it."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of objects, under one version of its API. One that has no namespace is found in namespace None."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        """As objects name it: ``v1``, ``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """The path of one object, or of all in a namespace (None: in all namespaces)."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part is not None]
        return "/" + "/".join(quote(part, safe="") for part in parts)


def without_managed_fields(document: Mapping[str, Any]) -> Object:
    """The object as kubectl shows it."""
    return {
        **document,
        "metadata": {name: value for name, value in document["metadata"].items() if name != "managedFields"},
    }


RLJOBS = Resource("rljob.dev", "v1alpha1", "rljobs", "RLJob")
RLEXPERIMENTS = Resource("rljob.dev", "v1alpha1", "rlexperiments", "RLExperiment")
PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
VOLUME_CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume")
NODES = Resource("", "v1", "nodes", "Node")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass")
JOBS = Resource("batch", "v1", "jobs", "Job")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
WORKLOADS = Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")
FLAVORS = Resource("kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor")
WORKLOAD_PRIORITIES = Resource("kueue.x-k8s.io", "v1beta2", "workloadpriorityclasses", "WorkloadPriorityClass")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")

ALL = (
    RLJOBS, PODS, SERVICES, SECRETS, CONFIG_MAPS, VOLUME_CLAIMS, NETWORK_POLICIES,
    JOBS, LEASES, EVENTS,
)  # fmt: skip
_BY_KIND = {(resource.api_version, resource.kind): resource for resource in (*ALL, WORKLOADS)}


def resource_of(document: Mapping[str, Any]) -> Resource:
    """The resource that an object belongs to, by its apiVersion and kind. Raises ``KeyError`` for one not handled here."""
    return _BY_KIND[document["apiVersion"], document["kind"]]


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The smallest patch that turns ``before`` into ``after``; empty where they are the same. Neither has a null in it; lists are
    replaced as a whole."""
    change: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        if name not in before:
            change[name] = value
        elif value != (old := before[name]):
            both = isinstance(value, Mapping) and isinstance(old, Mapping)
            change[name] = merge_patch(old, value) if both else value
    return change

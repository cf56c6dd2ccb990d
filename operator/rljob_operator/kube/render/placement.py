"""Where a role's pods go: the manifest's fields and podTemplate, spot nodes, and nodes with GPUs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from rljob.api import RLJob
from rljob.api.pods import Resources

from rljob_operator.core.member import Role
from rljob_operator.kube.render import names
from rljob_operator.kube.render.names import at
from rljob_operator.kube.render.roles import device, section
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.spot import on_spot_nodes

_GPU_WEIGHT: Final = 60
"""Weight of the preference to keep off nodes with a GPU, from 1 to 100: above that for spot nodes."""
_HOST: Final = "kubernetes.io/hostname"
_ARCHITECTURE: Final = "kubernetes.io/arch"
_SPREAD: Final = {"Preferred": "ScheduleAnyway", "Required": "DoNotSchedule"}


def as_written(job: RLJob, role: Role) -> dict[str, Any]:
    """The part of a PodSpec about the node that the manifest has fields for; podTemplate may change it."""
    given, found = section(job, role), dict[str, Any]()
    for name, value in (("nodeSelector", given.node_selector), ("tolerations", given.tolerations)):
        if value:
            found[name] = copy.deepcopy(value)
    if role is Role.ACTOR and job.spec.actors.topology_spread != "None":
        found["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": _HOST,
                "whenUnsatisfiable": _SPREAD[job.spec.actors.topology_spread],
                "labelSelector": {"matchLabels": names.role_labels(job.metadata.name, role)},
            }
        ]
    return found


def placed(spec: Mapping[str, Any], job: RLJob, role: Role, settings: Settings) -> dict[str, Any]:
    """A copy of a PodSpec that has podTemplate in it already, with what the job's image, device and wish for spot nodes ask of a
    node, beside its own affinity and tolerations."""
    given, found = section(job, role), copy.deepcopy(dict(spec))
    if role is Role.ACTOR and job.spec.actors.spot:
        found = on_spot_nodes(found, settings.spot)
    if settings.architectures and not (
        given.image or job.spec.image or _ARCHITECTURE in (found.get("nodeSelector") or ())
    ):
        of_images = {"kubernetes.io/os": ["linux"], _ARCHITECTURE: list(settings.architectures)}
        _require(found, [{"key": key, "operator": "In", "values": values} for key, values in of_images.items()])
    devices = device(job, role)
    if devices:
        _tolerate_device_nodes(found, devices)
    elif not _asks_for_devices(given.resources):
        _keep_off_gpu_nodes(found, settings)
    return found


def _asks_for_devices(resources: Resources) -> bool:
    """Whether a role without an accelerator of its own asks for an extended resource, all of which have a domain."""
    return any("/" in name for name in (*resources.requests, *resources.limits))


def _tolerate_device_nodes(spec: dict[str, Any], devices: dict[str, str]) -> None:
    """Add the toleration for nodes that their owner keeps free for the device: by custom their taint's key is its name."""
    given = at(spec, "tolerations", [])
    wanted = ({"key": name, "operator": "Exists", "effect": "NoSchedule"} for name in devices)
    given.extend([each for each in wanted if each not in given])


def _keep_off_gpu_nodes(spec: dict[str, Any], settings: Settings) -> None:
    """Add a node affinity, preferred or required, to nodes without any of the labels that GPU nodes have."""
    labels = settings.gpu_node_labels
    sent_there = any(label in (spec.get("nodeSelector") or {}) for label in labels)
    if settings.keep_off_gpu_nodes == "None" or sent_there or not labels:
        return
    expressions = [{"key": label, "operator": "DoesNotExist"} for label in labels]
    if settings.keep_off_gpu_nodes == "Required":
        _require(spec, expressions)
    else:
        of_nodes = at(at(spec, "affinity", {}), "nodeAffinity", {})
        preferred = {"weight": _GPU_WEIGHT, "preference": {"matchExpressions": expressions}}
        at(of_nodes, "preferredDuringSchedulingIgnoredDuringExecution", []).append(preferred)


def _require(spec: dict[str, Any], expressions: list[dict[str, Any]]) -> None:
    """Add a required node affinity, beside what its user requires."""
    of_nodes = at(at(spec, "affinity", {}), "nodeAffinity", {})
    terms = at(at(of_nodes, "requiredDuringSchedulingIgnoredDuringExecution", {}), "nodeSelectorTerms", [])
    if not terms:
        terms.append({})
    for term in terms:  # any one of them is enough, so each has to say it
        if isinstance(term, dict):
            at(term, "matchExpressions", []).extend(expressions)

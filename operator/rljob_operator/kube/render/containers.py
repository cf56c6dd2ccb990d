"""The container that runs a role: its command, its probes, what it asks for, and what it may not do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rljob.api import RLJob
from rljob.api.pods import Resources

from rljob_operator.core.member import Role
from rljob_operator.kube.render import names
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.roles import device, image, section
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.variables import environment
from rljob_operator.kube.render.volumes import mounts

PROBE_SECONDS: Final = 2
"""Between two questions of the kubelet, and for an answer: as a run on one machine asks."""
NOT_READY_SECONDS: Final = 4
HUNG_SECONDS: Final = 60
"""After so much silence a container is killed (docs/lifecycle.md)."""
_KILL_SECONDS: Final = 5
"""Time to leave for a container that does not answer: it hangs, so it gets no time to drain."""

_PORTS: Final = {
    Role.REPLAY: ("ingest", "sample"),
    Role.LEARNER: ("weights", "notice"),
    Role.INFERENCE: ("inference",),
    Role.ACTOR: (),
    Role.EVALUATOR: (),
}


def worker(owned: Owned, member: str, settings: Settings) -> dict[str, Any]:
    """The container ``worker`` of a member's pod. Raises `PodProblem`."""
    job, role = owned.job, Role.of(member)
    return {
        "name": names.WORKER,
        "image": image(job, role, settings),
        "args": ["worker", str(role)],  # the image's entry point is an init that runs `rljob`
        "env": environment(owned, member, settings),
        **_credentials(job, role),
        "ports": _ports(job, role),
        "resources": resources(section(job, role).resources, settings.requests[role], device(job, role)),
        "volumeMounts": mounts(job, member, settings),
        **_probes(job),
        "securityContext": restricted(),
    }


def restricted() -> dict[str, Any]:
    """A container's part of what Pod Security `restricted` demands, and a root filesystem that can't be written."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def resources(
    written: Resources, otherwise: Mapping[str, str], devices: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What a container asks for. A resource of ``otherwise`` counts where the manifest gives neither a request nor a limit, from
    which Kubernetes would take the request; devices are limits, as Kubernetes has them."""
    missing = {name: value for name, value in otherwise.items() if name not in {**written.requests, **written.limits}}
    found = {"requests": {**written.requests, **missing}, "limits": {**written.limits, **(devices or {})}}
    for name in devices or {}:
        found["requests"].pop(name, None)
    return {kind: values for kind, values in found.items() if values}


def _ports(job: RLJob, role: Role) -> list[dict[str, Any]]:
    found = list(_PORTS[role])
    if role is Role.LEARNER and job.spec.replay is None:
        found.append("ingest")
    if role is Role.LEARNER and job.spec.actors.inference == "Central" and not job.spec.inference.replicas:
        found.append("inference")
    numbers = {**{name: names.DATA_PORTS[name] for name in found}, names.METRICS: job.spec.monitoring.metrics_port}
    return [{"name": name, "containerPort": number} for name, number in numbers.items()]


def _credentials(job: RLJob, role: Role) -> dict[str, Any]:
    """The variables of an object store's Secret, for the learner alone."""
    storage = job.spec.checkpoint.storage
    store = storage.object_store if storage is not None else None
    if role is not Role.LEARNER or store is None or store.secret_ref is None:
        return {}
    return {"envFrom": [{"secretRef": {"name": store.secret_ref.name}}]}


def _probes(job: RLJob) -> dict[str, Any]:
    """Started: it answers at all, which may take as long as the job may take to come up. Live: its loop goes on. Ready: it does
    its work. A learner is ready with its first experience, which actors bring: a controller that starts one role after the other
    has to go by what is started, as a run on one machine does."""

    def asked(page: str, seconds: int, every: int = PROBE_SECONDS) -> dict[str, Any]:
        return {
            "httpGet": {"path": page, "port": names.METRICS},
            "periodSeconds": every,
            "timeoutSeconds": PROBE_SECONDS,
            "failureThreshold": max(1, seconds // every),
        }

    return {
        "startupProbe": asked("/healthz", job.spec.startup_deadline_seconds, every=1),
        "livenessProbe": {**asked("/healthz", HUNG_SECONDS), "terminationGracePeriodSeconds": _KILL_SECONDS},
        "readinessProbe": asked("/readyz", NOT_READY_SECONDS),
    }

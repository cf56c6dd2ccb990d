"""What of a manifest means nothing on one machine, so that a local run can name it once instead of passing over it in
silence."""

from __future__ import annotations

from pydantic import BaseModel

from rljob.api.job import RLJob
from rljob.api.pods import RoleSpec

_ROLE = tuple(field.alias or name for name, field in RoleSpec.model_fields.items())
_CLUSTER_ONLY = (
    "metadata.namespace",
    "spec.managedBy",
    "spec.image",
    "spec.imagePullSecrets",
    *(f"spec.{role}.{field}" for role in ("learner", "replay", "actors", "inference", "evaluator") for field in _ROLE),
    "spec.replay.redis.image",
    "spec.replay.redis.resources",
    "spec.replay.redis.persistence.storage",
    "spec.replay.redis.persistence.storageClassName",
    "spec.replay.redis.external.secretRef",
    "spec.actors.onEviction",
    "spec.actors.spot",
    "spec.checkpoint.storage.persistentVolumeClaim",
    "spec.checkpoint.storage.objectStore.secretRef",
    "spec.ttlSecondsAfterFinished",
    "spec.podCleanup",
    "spec.scheduling",
    "spec.network",
    "spec.monitoring",
)
_LEARNER = "spec.learner.resources"
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def not_applied_locally(job: RLJob) -> list[str]:
    """Paths of the fields that the user set and that a run on one machine does not apply, in the order of the list above.

    A field set to what one machine does anyway (nothing) is not named.
    """
    found = [path for path in _CLUSTER_ONLY if _is_set(job, path)]
    if _LEARNER in found:  # its requests.cpu is the number of threads that torch computes with, here too
        at, learner = found.index(_LEARNER), job.spec.learner
        requests = [f"{_LEARNER}.requests.{name}" for name in learner.resources.requests if name != "cpu"]
        limits = (name for name in learner.resources.limits if name != learner.accelerator.resource_name)
        found[at : at + 1] = [*requests, *(f"{_LEARNER}.limits.{name}" for name in limits)]
    players = {
        "spec.actors.resources": job.spec.actors.resources,
        "spec.evaluator.resources": job.spec.evaluator.resources,
    }
    for role, resources in players.items():
        if role in found:  # the cpu of either is how many emulators run at once
            at, asked = found.index(role), {"requests": resources.requests, "limits": resources.limits}
            found[at : at + 1] = [f"{role}.{kind}.{name}" for kind in asked for name in asked[kind] if name != "cpu"]
    if _QUEUE_LABEL in job.metadata.labels:
        found.insert(0, f"metadata.labels.{_QUEUE_LABEL}")
    return found


def _is_set(job: RLJob, path: str) -> bool:
    """Whether the document gave ``path`` a value that asks for something."""
    node: object = job
    for part in path.split("."):
        if not isinstance(node, BaseModel):
            return False
        name = next(n for n, field in type(node).model_fields.items() if (field.alias or n) == part)
        if name not in node.model_fields_set:
            return False
        node = getattr(node, name)
    return bool(node) and not (isinstance(node, BaseModel) and not node.model_fields_set)

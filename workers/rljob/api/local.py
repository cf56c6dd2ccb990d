"""What of a manifest means nothing on one machine, so that a local run can name it once instead of passing over it in
silence."""

from pydantic import BaseModel

from rljob.api.job import RLJob
from rljob.api.pods import RoleSpec

_ROLE = tuple(field.alias or name for name, field in RoleSpec.model_fields.items())
_CLUSTER_ONLY = (
    "metadata.namespace",
    "spec.managedBy",
    "spec.image",
    "spec.imagePullSecrets",
    "spec.code",
    *(f"spec.{role}.{field}" for role in ("learner", "replay", "actors", "inference", "evaluator") for field in _ROLE),
    "spec.replay.redis.image",
    "spec.replay.redis.resources",
    "spec.replay.redis.persistence.storage",
    "spec.replay.redis.persistence.storageClassName",
    "spec.replay.redis.external.secretRef",
    "spec.actors.spot",
    "spec.actors.topologySpread",
    "spec.checkpoint.storage.persistentVolumeClaim",
    "spec.checkpoint.storage.objectStore.secretRef",
    "spec.ttlSecondsAfterFinished",
    "spec.scheduling",
    "spec.network",
    "spec.monitoring",
    "spec.tracking.secretRef",
)
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def not_applied_locally(job: RLJob) -> list[str]:
    """Paths of the fields that the user set and that a run on one machine does not apply, in the order of the list above.

    A field set to what one machine does anyway (nothing) is not named.
    """
    found = [part for path in _CLUSTER_ONLY if _is_set(job, path) for part in _parts(job, path)]
    if _QUEUE_LABEL in job.metadata.labels:
        found.insert(0, f"metadata.labels.{_QUEUE_LABEL}")
    return found


def _parts(job: RLJob, path: str) -> list[str]:
    """What of a field that is set is passed over: of a role's variables those whose value a cluster takes from elsewhere, of
    resources all but the processors, and the learner's device, that a role goes by here, too."""
    section, _, field = path.removeprefix("spec.").partition(".")
    role = getattr(job.spec, section, None)
    if field == "env" and isinstance(role, RoleSpec):
        return [f"{path}[{entry.name}]" for entry in role.env or () if "valueFrom" in entry.model_dump()]
    if field == "resources" and section in ("learner", "actors", "evaluator") and isinstance(role, RoleSpec):
        asked = {"requests": role.resources.requests, "limits": role.resources.limits}
        of_limits = job.spec.learner.accelerator.resource_name if section == "learner" else "cpu"
        own = {("requests", "cpu"), ("limits", of_limits)}
        return [f"{path}.{kind}.{name}" for kind in asked for name in asked[kind] if (kind, name) not in own]
    return [path]


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

"""What the manifest says of a role's pods: its section, its image, its device, and what must outlive it."""

from typing import Any

from rljob.api import RLJob
from rljob.api.replay import ExternalRedis
from rljob.api.roles import RoleSpec

from rljob_operator.core.member import Role
from rljob_operator.kube.render.settings import Settings


def section_name(role: Role) -> str:
    """The role's section in the manifest: ``actors`` for an actor."""
    return "actors" if role is Role.ACTOR else str(role)


def section(job: RLJob, role: Role) -> RoleSpec:
    """The fields of the role's pods."""
    if role is Role.REPLAY:
        return job.spec.required_replay
    found: RoleSpec = getattr(job.spec, section_name(role))
    return found


def users_pod_spec(job: RLJob, role: Role) -> dict[str, Any]:
    """The part of the role's podTemplate about the pod's spec; empty where there is none."""
    found = (section(job, role).pod_template or {}).get("spec")
    return found if isinstance(found, dict) else {}


def device(job: RLJob, role: Role) -> dict[str, str]:
    """The extended resource of a role that asks for a device, as a limit; empty where it computes on the CPU."""
    asked = {Role.LEARNER: job.spec.learner.accelerator, Role.INFERENCE: job.spec.inference.accelerator}.get(role)
    return {asked.resource_name: str(asked.count)} if asked is not None and asked.count else {}


def image(job: RLJob, role: Role, settings: Settings) -> str:
    """The role's own image, or the job's, or the operator's."""
    given = section(job, role).image or job.spec.image
    return given or (settings.gpu_image if device(job, role) else "") or settings.image


def keeps_experience(job: RLJob) -> bool:
    """Whether a replay shard has a log that survives it, in a Redis beside it or in one of the user's own."""
    replay = job.spec.replay
    if replay is None or "Replay" not in job.spec.checkpoint.include:
        return False
    return replay.redis.external is not None or replay.redis.persistence.mode != "None"


def has_own_redis(job: RLJob) -> bool:
    """Whether a replay shard has a Redis of its own beside it, with a volume."""
    return keeps_experience(job) and job.spec.required_replay.redis.external is None


def external_redis_of(job: RLJob) -> ExternalRedis | None:
    """The Redis of the user's own that the shards keep their experience in."""
    return job.spec.required_replay.redis.external if keeps_experience(job) else None

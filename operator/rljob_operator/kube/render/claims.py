"""The volumes that outlive a member's pod: the learner's for checkpoints, each replay shard's for its log."""

from __future__ import annotations

from typing import Any

from rljob.api.memory_estimate import log_gib

from rljob_operator.kube.render import names
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.roles import has_own_redis
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.volumes import makes_checkpoint_claim


def claims(owned: Owned, settings: Settings) -> list[dict[str, Any]]:
    """Every PersistentVolumeClaim of the job. They go with it: ``checkpoint.storage`` is for what is to outlive it."""
    job, found = owned.job, []
    if makes_checkpoint_claim(job, settings):
        found.append(checkpoint_claim_of(owned, settings))
    if has_own_redis(job):
        kept = job.spec.required_replay.redis.persistence
        replay, frame_size = job.spec.required_replay.resolved(), job.spec.environment.parameters.frame_size
        size = kept.storage or f"{log_gib(replay, frame_size)}Gi"
        found += [_claim(owned, shard, size, kept.storage_class_name) for shard in names.shards(job)]
    return found


def checkpoint_claim_of(owned: Owned, settings: Settings) -> dict[str, Any]:
    """The claim for the checkpoints of a job that names no place for them."""
    return _claim(owned, "learner", settings.checkpoint_size, settings.checkpoint_class)


def _claim(owned: Owned, member: str, size: str, storage_class: str) -> dict[str, Any]:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
        **({"storageClassName": storage_class} if storage_class else {}),
    }
    metadata = owned.metadata(owned.claim(member), {**names.labels(owned.name), names.MEMBER_LABEL: member})
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}

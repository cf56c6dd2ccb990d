"""The Redis of a replay shard: a native sidecar, which starts before the service and saves after it has ended."""

from __future__ import annotations

from typing import Any, Final

from rljob.api import RLJob, quantity
from rljob.replay.redis_options import server_options

from rljob_operator.core.member import Role
from rljob_operator.kube.render import names
from rljob_operator.kube.render.containers import resources, restricted
from rljob_operator.kube.render.roles import image
from rljob_operator.kube.render.settings import Settings
from rljob_operator.kube.render.volumes import REDIS_DATA, REDIS_SOCKET

SAVE_SECONDS: Final = 60
"""For Redis to write its data once the service has ended, beside the service's own time."""
_MEMORY_SHARE: Final = 0.75
"""Share of a memory limit that the log may fill: above it Redis takes no writes, which the service reports and lives with,
while the kernel would end the whole server. The rest is for what a snapshot copies."""
_PROBE_SECONDS: Final = 5


def sidecar(job: RLJob, settings: Settings) -> dict[str, Any]:
    """The init container ``redis``, of the shard's own image or of ``replay.redis.image``."""
    redis = job.spec.required_replay.redis
    module = ["python", "-m", "rljob.replay.redis_server"]
    folder, socket, mode = names.REDIS_DATA_DIR, names.REDIS_SOCKET, redis.persistence.mode
    largest_bytes = int(quantity(redis.resources.limits.get("memory", "0")) * _MEMORY_SHARE)
    if redis.image is None:
        command = [*module, "serve", folder, socket, mode, str(largest_bytes)]
        question = [*module, "ping", socket]
    else:
        command = ["redis-server", *server_options(folder, socket, mode, largest_bytes=largest_bytes)]
        question = ["redis-cli", "-e", "-s", socket, "ping"]
    return {
        "name": names.REDIS,
        "image": redis.image or image(job, Role.REPLAY, settings),
        "command": command,
        "restartPolicy": "Always",
        "resources": resources(redis.resources, settings.redis_requests),
        "volumeMounts": [
            {"name": REDIS_DATA, "mountPath": folder},
            {"name": REDIS_SOCKET, "mountPath": names.REDIS_SOCKET_DIR},
        ],
        "startupProbe": {  # it answers once it has read its data; only then the service begins
            "exec": {"command": question},
            "periodSeconds": 1,
            "timeoutSeconds": _PROBE_SECONDS,
            "failureThreshold": job.spec.startup_deadline_seconds,
        },
        "securityContext": restricted(),
    }

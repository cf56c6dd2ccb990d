"""A Redis of the user's own: how a replay shard is told of it, and what removes the shard's log there in the end."""

from collections.abc import Mapping
from typing import Any, Final

from rljob.api.replay import ExternalRedis

from rljob_operator.core.member import number
from rljob_operator.kube.render import names
from rljob_operator.kube.render.metadata import Owned, handed_on
from rljob_operator.kube.render.settings import SMALL

_ADDRESS: Final = "RLJOB_REDIS"
_KEYS: Final = "RLJOB_REDIS_KEYS"
_OF_THE_SECRET: Final = {"PASSWORD": ("password", True), "USERNAME": ("username", False), "CA": ("ca.crt", False)}
"""Variable, without what all begin with -> its key in the Secret, and whether it has to be there."""
_TRIED_SECONDS: Final = 3600


def plain_variables(owned: Owned, member: str, redis: ExternalRedis) -> dict[str, str]:
    """Where the Redis is, and what the names of the shard's keys begin with: no other shard has it, and no job that had this
    one's name before."""
    about = owned.job.metadata
    return {_ADDRESS: redis.url, _KEYS: f"{about.namespace}/{about.name}/{owned.uid}/{member}"}


def secret_variables(redis: ExternalRedis) -> list[dict[str, Any]]:
    """User, password and authority, as the kubelet takes them from the Secret; the operator never reads it."""
    if redis.secret_ref is None:
        return []
    secret = redis.secret_ref.name
    return [
        {
            "name": f"{_ADDRESS}_{name}",
            "valueFrom": {"secretKeyRef": {"name": secret, "key": key, **({} if must else {"optional": True})}},
        }
        for name, (key, must) in _OF_THE_SECRET.items()
    ]


def marks(redis: ExternalRedis | None) -> dict[str, str]:
    """Mark a shard's pod as one whose log is to be removed. Behind a unix socket is the pod's own server, which goes with it."""
    return {} if redis is None or redis.url.startswith("unix://") else {names.EXTERNAL_LOG_ANNOTATION: "true"}


def removal(pod: Mapping[str, Any]) -> dict[str, Any] | None:
    """The Job that removes the log of a shard; ``pod``, as the API server has it, was the shard's. None for one that has no such
    log: a user's podTemplate may have given it the mark, or taken the variables away.

    It has no owner, since the RLJob may be gone: while Redis is away it tries again for an hour, then it ends, and is
    deleted some minutes later. The RLJob does not wait for it.
    """
    about, spec = pod["metadata"], pod["spec"]
    worker = next(each for each in spec["containers"] if each["name"] == names.WORKER)
    variables = [each for each in worker.get("env") or () if each["name"].startswith(_ADDRESS)]
    value = {each["name"]: each.get("value", "") for each in variables}
    if not (value.get(_ADDRESS) and value.get(_KEYS)):
        return None
    shard = number(spec["hostname"])
    labels = {
        **handed_on(about.get("labels") or {}),
        "app.kubernetes.io/name": "rljob-log-removal",
        names.LOG_OF_LABEL: spec["subdomain"],  # see `names.service`; the pod's labels may be gone
    }
    container = {
        "name": "removal",
        "image": worker["image"],
        "command": ["python", "-m", "rljob.replay.remove_log", value[_ADDRESS], value[_KEYS], str(shard)],
        "env": [each for each in variables if each["name"] not in (_ADDRESS, _KEYS)],
        "resources": SMALL,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": worker.get("securityContext", {}),
    }
    kept = {
        name: spec[name]
        for name in ("securityContext", "imagePullSecrets", "nodeSelector", "affinity", "tolerations")
        if name in spec
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": about["name"], "namespace": about["namespace"], "labels": labels},
        "spec": {
            "activeDeadlineSeconds": _TRIED_SECONDS,
            "backoffLimit": 100,
            "ttlSecondsAfterFinished": 600,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "OnFailure",
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "containers": [container],
                    **kept,
                },
            },
        },
    }

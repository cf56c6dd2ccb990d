"""What a replay shard has left in a Redis of somebody else is removed once its job is over or gone, by a Job that is left behind.

It is never waited for, and nothing that keeps it from being made keeps a pod or an RLJob: what is not removed expires
(``rljob worker replay --redis-keep-seconds``).
"""

from __future__ import annotations

import logging
from contextlib import suppress

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import AlreadyExists, ApiError, NotFound, Unavailable
from rljob_operator.kube.apiserver.resources import JOBS, PODS
from rljob_operator.kube.job.members import Pod
from rljob_operator.kube.render import names
from rljob_operator.kube.render.external_redis import removal

log = logging.getLogger(__name__)


async def leave_removal(client: Client, found: Pod) -> None:
    """Make the Job for the shard of this pod, if it is one with such a log. To be called before the pod is let go, so that an
    operator that ends in between makes it at its next look. Raises `Unavailable`."""
    about = found["metadata"]
    ours = names.FINALIZER in (about.get("finalizers") or ())
    if not ours or names.EXTERNAL_LOG_ANNOTATION not in (about.get("annotations") or {}):
        return
    try:
        with suppress(NotFound, AlreadyExists):
            whole = await client.get(PODS, about["namespace"], about["name"])
            await client.create(JOBS, removal(whole))
    except Unavailable:
        raise
    except ApiError as problem:  # no quota, or the namespace is going
        log.warning("%s/%s: its log in Redis stays until it expires: %s", about["namespace"], about["name"], problem)

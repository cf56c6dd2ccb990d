"""What a replay shard has left in a Redis of somebody else is removed once its job is over or gone, by a Job that is left behind.

It is never waited for, and nothing that keeps it from being made keeps a pod or an RLJob: what is not removed, as where an RLJob
was deleted while there was no operator, expires (``rljob worker replay --redis-keep-seconds``).
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import AlreadyExists, ApiError, NotFound, TooManyRequests, Unavailable
from rljob_operator.kube.apiserver.resources import JOBS, PODS
from rljob_operator.kube.job.members import Pod
from rljob_operator.kube.render import names
from rljob_operator.kube.render.external_redis import removal
from rljob_operator.kube.watch.pods import is_gone

log = logging.getLogger(__name__)

_WEBHOOK_FAILED: Final = 500
"""What an API server answers where a webhook that it has to ask is down, or was left behind when its queue was uninstalled: to
wait for that would keep the pod for ever."""


async def leave_removal(client: Client, found: Pod) -> None:
    """Make the Job for the shard of this pod, if it is one with such a log, and is there still.

    Raises `ApiError` where the API server does not answer or asks for patience.
    """
    about = found["metadata"]
    if is_gone(found) or names.EXTERNAL_LOG_ANNOTATION not in (about.get("annotations") or {}):
        return
    try:
        with suppress(NotFound, AlreadyExists):
            made = removal(await client.get(PODS, about["namespace"], about["name"]))
            if made is not None:
                await client.create(JOBS, made)
    except ApiError as problem:  # no quota, or the namespace is going, or a webhook does not answer
        if isinstance(problem, TooManyRequests) or (
            isinstance(problem, Unavailable) and problem.code != _WEBHOOK_FAILED
        ):
            raise
        log.warning("%s/%s: its log in Redis stays until it expires: %s", about["namespace"], about["name"], problem)

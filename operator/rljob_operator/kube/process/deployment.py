"""The Deployment that an operator runs as, taken out of the way while its jobs are released."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from rljob_operator.kube.apiserver.access import load_access
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import Resource
from rljob_operator.kube.process.operator import OperatorConfig
from rljob_operator.kube.process.release import Row, release

log = logging.getLogger(__name__)

DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
STOP_SECONDS: Final = 60.0
"""An operator ends its turns and gives the Lease back in less; the wait for the Lease, which comes then, does the rest."""
LOOK_SECONDS: Final = 0.5


async def release_of_deployment(config: OperatorConfig, seconds: float, namespace: str, name: str) -> list[Row]:
    """`release`, with the operator stopped that the Deployment runs. Where a job keeps something, or nothing came of it, the
    operator is started again, and brings the drained jobs up again.

    Raises what `release` does, and `ApiError` where the Deployment is not there or may not be scaled.
    """
    client = Client(await load_access(config.kubeconfig, config.context))
    try:
        before = (await client.get(DEPLOYMENTS, namespace, name))["spec"].get("replicas", 1)
        await _scale(client, namespace, name, 0)
        done = False
        try:
            await _wait_stopped(client, namespace, name)
            rows = await release(config, seconds)
            done = not any(row.kept for row in rows)
        finally:
            if not done:
                await _scale(client, namespace, name, before)
        return rows
    finally:
        await client.close()


async def _scale(client: Client, namespace: str, name: str, replicas: int) -> None:
    log.info("deployment %s/%s: %d replicas", namespace, name, replicas)
    await client.patch(DEPLOYMENTS, namespace, name, {"spec": {"replicas": replicas}}, subresource="scale")


async def _wait_stopped(client: Client, namespace: str, name: str) -> None:
    """Until no pod of it is left that is not about to end."""
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline:
        found = await client.get(DEPLOYMENTS, namespace, name)
        status = found.get("status") or {}
        seen = status.get("observedGeneration", 0) >= found["metadata"]["generation"]
        if seen and not status.get("replicas"):
            return
        await asyncio.sleep(LOOK_SECONDS)

"""``--release --stop-deployment``: the operator is out of the way while jobs are released, and comes back where that fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import NotFound
from rljob_operator.kube.apiserver.resources import RLJOBS
from rljob_operator.kube.process.deployment import DEPLOYMENTS, release_of_deployment

from tests.cluster.control_plane import ControlPlane
from tests.cluster.kube_client import connected
from tests.cluster.reconciling import Run, bring_up, written
from tests.cluster.test_kube_reconcile import TWO_ACTORS, at_work
from tests.cluster.test_kube_release import STORAGE, config, kept

NAME = "operator"
LABELS = {"app": NAME}


def deployment(namespace: str) -> dict[str, Any]:
    pod = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": NAME, "image": "rl:1"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": LABELS}, "template": pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": spec,
    }


@asynccontextmanager
async def deployed(viewer: Client, namespace: str) -> AsyncIterator[list[int]]:
    """The Deployment with somebody who has its replicas be as many as are wanted; how many these were, in turn."""
    wanted: list[int] = []

    async def controls() -> None:
        while True:
            found = await viewer.get(DEPLOYMENTS, namespace, NAME)
            generation, replicas = found["metadata"]["generation"], found["spec"]["replicas"]
            if (found.get("status") or {}).get("observedGeneration") != generation:
                wanted.append(replicas)
                status = {"observedGeneration": generation, "replicas": replicas}
                await viewer.patch(DEPLOYMENTS, namespace, NAME, {"status": status}, subresource="status")
            await asyncio.sleep(0.1)

    await viewer.create(DEPLOYMENTS, deployment(namespace))
    controller = asyncio.ensure_future(controls())
    try:
        yield wanted
        await asyncio.sleep(0.5)
    finally:
        controller.cancel()
        with suppress(asyncio.CancelledError):
            await controller


def test_the_operator_stays_away_once_all_is_released(cluster: ControlPlane, namespace: str) -> None:
    async def story() -> None:
        async with connected(cluster) as viewer, deployed(viewer, namespace) as wanted:
            assert await release_of_deployment(config(cluster, namespace), 20.0, namespace, NAME) == []
        assert wanted in ([2, 0], [0])

    asyncio.run(story())


def test_the_operator_comes_back_where_a_job_keeps_something(cluster: ControlPlane, namespace: str) -> None:
    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet), deployed(viewer, namespace) as wanted:
            await viewer.create(RLJOBS, written(namespace, "pong", **TWO_ACTORS, **STORAGE))
            await bring_up(Run(client, namespace), viewer, kubelet, "pong")
            (row,) = await release_of_deployment(config(cluster, namespace), 2.0, namespace, NAME)
            assert row.kept == 4
            await asyncio.sleep(0.5)
            assert wanted[-2:] == [0, 2]
            assert len(await kept(viewer, namespace)) == 4

    asyncio.run(story())


def test_without_the_deployment_nothing_is_changed(cluster: ControlPlane, namespace: str) -> None:
    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            await viewer.create(RLJOBS, written(namespace, "pong", **TWO_ACTORS))
            await bring_up(Run(client, namespace), viewer, kubelet, "pong")
            with pytest.raises(NotFound, match=NAME):
                await release_of_deployment(config(cluster, namespace), 20.0, namespace, NAME)
            assert len(await kept(viewer, namespace)) == 4

    asyncio.run(story())

"""What a user deletes of a job that runs is there again, and what is left of a former job of the same name is waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import NotFound
from rljob_operator.kube.apiserver.resources import (
    CONFIG_MAPS,
    NETWORK_POLICIES,
    PODS,
    RLJOBS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VOLUME_CLAIMS,
    Resource,
)

from tests.cluster.control_plane import ControlPlane
from tests.cluster.kube_client import config_map, connected
from tests.cluster.operator_program import OperatorProgram, operator_program
from tests.cluster.reconciling import written

SOON_SECONDS = 15.0
CHILDREN = [
    (SERVICE_ACCOUNTS, "held"),
    (CONFIG_MAPS, "held-job"),
    (SERVICES, "held"),
    (NETWORK_POLICIES, "held"),
    (VOLUME_CLAIMS, "held-replay-0"),
]


@asynccontextmanager
async def at_work(cluster: ControlPlane, namespace: str, folder: Path) -> AsyncIterator[tuple[Client, OperatorProgram]]:
    async with (
        connected(cluster) as viewer,
        operator_program(cluster.kubeconfig, namespace, folder / "log") as program,
    ):
        yield viewer, program


async def uid(viewer: Client, resource: Resource, namespace: str, name: str) -> str | None:
    try:
        return str((await viewer.get(resource, namespace, name))["metadata"]["uid"])
    except NotFound:
        return None


async def pods(viewer: Client, namespace: str) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in (await viewer.list(PODS, namespace)).items)


@pytest.mark.timeout(120)
def test_children_that_somebody_deletes_are_made_again(cluster: ControlPlane, namespace: str, tmp_path: Path) -> None:
    """No pod is touched, and none has to be made for it."""

    async def story() -> None:
        async with at_work(cluster, namespace, tmp_path) as (viewer, program):
            await viewer.create(RLJOBS, written(namespace, "held"))
            began = time.monotonic()
            while not any(name.startswith("held-learner") for name in await pods(viewer, namespace)):
                assert time.monotonic() - began < 60, program.log()[-3000:]
                await asyncio.sleep(0.2)
            before, took = await pods(viewer, namespace), {}
            for resource, name in CHILDREN:
                old = await uid(viewer, resource, namespace, name)
                assert old is not None, f"{resource.kind} {name} was never there"
                await viewer.delete(resource, namespace, name)
                if resource is VOLUME_CLAIMS:  # what takes its finalizer off where no pod uses it is not here
                    await viewer.patch(resource, namespace, name, {"metadata": {"finalizers": None}})
                began = time.monotonic()
                while await uid(viewer, resource, namespace, name) in (None, old):
                    late = time.monotonic() - began
                    assert late < SOON_SECONDS, f"{resource.kind} was not made again:\n{program.log()[-3000:]}"
                    await asyncio.sleep(0.05)
                took[resource.kind] = round(time.monotonic() - began, 1)
            print(f"seconds until each is there again: {took}")
            assert await pods(viewer, namespace) == before

    asyncio.run(story())


@pytest.mark.timeout(120)
def test_what_is_left_of_a_former_job_is_waited_for_by_name(
    cluster: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with at_work(cluster, namespace, tmp_path) as (viewer, program):
            await viewer.create(RLJOBS, written(namespace, "former"))
            former = await uid(viewer, RLJOBS, namespace, "former")
            assert former is not None
            await viewer.delete(RLJOBS, namespace, "former")
            labels = {"app.kubernetes.io/managed-by": "rljob", "rljob.dev/job": "held"}
            left = config_map("held-job", namespace, labels)
            owner = {
                "apiVersion": "rljob.dev/v1alpha1",
                "kind": "RLJob",
                "name": "held",
                "uid": former,
                "controller": True,
            }
            left["metadata"]["ownerReferences"] = [owner]
            await viewer.create(CONFIG_MAPS, left)

            await viewer.create(RLJOBS, written(namespace, "held"))
            wanted = "waits until ConfigMap held-job of the RLJob held that had this name before is gone"
            began = time.monotonic()
            while not any(wanted in each["message"] for each in await conditions(viewer, namespace)):
                assert time.monotonic() - began < 30, f"{await conditions(viewer, namespace)}\n{program.log()[-3000:]}"
                await asyncio.sleep(0.2)
            await asyncio.sleep(8.0)  # the pause has grown meanwhile
            assert not [name for name in await pods(viewer, namespace) if name.startswith("held-")]
            await viewer.delete(CONFIG_MAPS, namespace, "held-job")
            began = time.monotonic()
            while not any(name.startswith("held-learner") for name in await pods(viewer, namespace)):
                assert time.monotonic() - began < 5.0, f"{await conditions(viewer, namespace)}\n{program.log()[-3000:]}"
                await asyncio.sleep(0.1)

    asyncio.run(story())


async def conditions(viewer: Client, namespace: str) -> list[dict[str, str]]:
    job = await viewer.get(RLJOBS, namespace, "held")
    return list(job.get("status", {}).get("conditions", ()))

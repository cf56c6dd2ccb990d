"""What a user deletes of a job that runs is there again, and what is left of a former job of the same name is waited for."""

import asyncio
from pathlib import Path

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import NotFound
from rljob_operator.kube.apiserver.resources import (
    CONFIG_MAPS,
    NETWORK_POLICIES,
    PODS,
    RLJOBS,
    SERVICES,
    VOLUME_CLAIMS,
    Resource,
)

from tests.cluster.control_plane import ControlPlane, config_map, until
from tests.cluster.operator_program import operator_program
from tests.cluster.reconciling import status_of, written

SOON_SECONDS = 15.0
WAITS = "waits until ConfigMap held-job of the RLJob held that had this name before is gone"
CHILDREN = [
    (CONFIG_MAPS, "held-job"),
    (SERVICES, "held"),
    (NETWORK_POLICIES, "held"),
    (VOLUME_CLAIMS, "held-replay-0"),
]


async def uid(viewer: Client, resource: Resource, namespace: str, name: str) -> str | None:
    try:
        return str((await viewer.get(resource, namespace, name))["metadata"]["uid"])
    except NotFound:
        return None


async def pods(viewer: Client, namespace: str) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in (await viewer.list(PODS, namespace)).items)


async def is_up(viewer: Client, namespace: str) -> bool:
    roles = {name.split("-")[1] for name in await pods(viewer, namespace) if name.startswith("held-")}
    return roles >= {"replay", "learner", "actor"}


@pytest.mark.timeout(120)
async def test_children_that_somebody_deletes_are_made_again(
    cluster: ControlPlane, viewer: Client, namespace: str, tmp_path: Path
) -> None:
    """No pod is touched, and none has to be made for it."""
    async with operator_program(cluster.kubeconfig, namespace, tmp_path / "log") as program:
        await viewer.create(RLJOBS, written(namespace, "held"))
        await until("the job's start", lambda: is_up(viewer, namespace), 60, program.log)
        before, took = await pods(viewer, namespace), {}
        for resource, name in CHILDREN:
            old = await uid(viewer, resource, namespace, name)
            assert old is not None, f"{resource.kind} {name} was never there"
            await viewer.delete(resource, namespace, name)
            if resource is VOLUME_CLAIMS:  # what takes its finalizer off where no pod uses it is not here
                await viewer.patch(resource, namespace, name, {"metadata": {"finalizers": None}})

            async def is_new(resource: Resource = resource, name: str = name, old: str = old) -> bool:
                return await uid(viewer, resource, namespace, name) not in (None, old)

            took[resource.kind] = await until(f"a {resource.kind} again", is_new, SOON_SECONDS, program.log)
        print(f"seconds until each is there again: {took}")
        assert await pods(viewer, namespace) == before


@pytest.mark.timeout(120)
async def test_what_is_left_of_a_former_job_is_waited_for_by_name(
    cluster: ControlPlane, viewer: Client, namespace: str, tmp_path: Path
) -> None:
    async def waits() -> bool:
        return WAITS in str((await status_of(viewer, namespace, "held")).get("conditions"))

    async with operator_program(cluster.kubeconfig, namespace, tmp_path / "log") as program:
        former = await viewer.create(RLJOBS, written(namespace, "former"))
        await viewer.delete(RLJOBS, namespace, "former")
        left = config_map("held-job", namespace, {"app.kubernetes.io/managed-by": "rljob", "rljob.dev/job": "held"})
        left["metadata"]["ownerReferences"] = [
            {"apiVersion": RLJOBS.api_version, "kind": RLJOBS.kind, "name": "held", "uid": former["metadata"]["uid"],
             "controller": True},
        ]  # fmt: skip
        await viewer.create(CONFIG_MAPS, left)
        await viewer.create(RLJOBS, written(namespace, "held"))
        await until("the wait for what is left", waits, 30, program.log)
        await asyncio.sleep(8.0)  # the pause has grown meanwhile
        assert not [name for name in await pods(viewer, namespace) if name.startswith("held-")]
        await viewer.delete(CONFIG_MAPS, namespace, "held-job")
        await until("the job's start", lambda: is_up(viewer, namespace), 5.0, program.log)

"""What a user deletes of a job that runs is there again, and what is left of a former job of the same name is waited for.

Where a job's checkpoints are that names no place for them: on a claim wherever the cluster has volumes to give.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
    Object,
    Resource,
)

from tests.cluster.control_plane import ControlPlane, config_map, until
from tests.cluster.operator_program import operator_program
from tests.cluster.policies import set_quota
from tests.cluster.reconciling import BreakingClient, OneJob, Run, status_of, written
from tests.support.waiting import eventually

SOON_SECONDS = 15.0
WAITS = "waits until ConfigMap held-job of the RLJob held that had this name before is gone"
CHILDREN = [
    (CONFIG_MAPS, "held-job"),
    (SERVICES, "held"),
    (NETWORK_POLICIES, "held"),
    (VOLUME_CLAIMS, "held-replay-0"),
]
CHANGED: list[tuple[Resource, str, Object]] = [
    (CONFIG_MAPS, "held-job", {"data": {"job.yaml": "kind: Other"}}),
    (SERVICES, "held", {"spec": {"selector": {"app": "other"}}}),
    (NETWORK_POLICIES, "held", {"spec": {"ingress": []}}),
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
async def test_children_that_somebody_deletes_or_changes_are_made_again(
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
        for resource, name, changed in CHANGED:
            spec = (await viewer.get(resource, namespace, name))[next(iter(changed))]
            cluster.change(resource.path(namespace, name), changed)

            async def is_as_made(resource: Resource = resource, name: str = name, spec: Object = spec) -> bool:
                return spec in (await viewer.get(resource, namespace, name)).values()

            await until(f"the {resource.kind} as it was", is_as_made, SOON_SECONDS, program.log)
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


CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
STABLE = "storageclass.kubernetes.io/is-default-class"
BETA = "storageclass.beta.kubernetes.io/is-default-class"
WITHOUT_A_LOG = {"redis": {"persistence": {"mode": "None"}}}
PROBE = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


@contextmanager
def default_class(cluster: ControlPlane, namespace: str, annotation: str) -> Iterator[None]:
    """There is a default StorageClass, and the API server has heard of it."""
    about = {"name": "given", "annotations": {annotation: "true"}}
    cluster.create(CLASSES, {"metadata": about, "provisioner": "example.com/disks"})

    def is_given() -> bool:
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"generateName": "a-"}, "spec": PROBE}
        path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims?dryRun=All"
        return cluster.request("POST", path, claim)[1]["spec"].get("storageClassName") == "given"

    try:
        eventually(is_given, lambda: "the class is no default", 20.0, lambda: time.sleep(0.1))
        yield
    finally:
        cluster.request("DELETE", f"{CLASSES}/given")
        eventually(lambda: not is_given(), lambda: "the class stays", 20.0, lambda: time.sleep(0.1))


async def run_folder(pong: OneJob) -> Object:
    """What the learner has its run folder on."""
    volumes = (await pong.pod("learner"))["spec"]["volumes"]
    (found,) = [each for each in volumes if each["name"] == "rljob-run"]
    return {name: value for name, value in found.items() if name != "name"}


async def claims(pong: OneJob) -> dict[str, str]:
    found = (await pong.viewer.list(VOLUME_CLAIMS, pong.namespace)).items
    return {each["metadata"]["name"]: each["spec"]["resources"]["requests"]["storage"] for each in found}


@pytest.mark.parametrize("annotation", [STABLE, BETA])
async def test_a_job_that_is_created_suspended_gets_a_claim_when_it_is_resumed_and_keeps_it(
    cluster: ControlPlane, pong: OneJob, annotation: str
) -> None:
    """As queues and pipelines hand jobs over."""
    await pong.begin(suspend=True)
    await pong.expect(Accepted=("True", "Valid"), Suspended=("True", "UserRequested"), Ready=("False", "Suspended"))
    assert (await pong.pods(), await claims(pong)) == ({}, {}), "nothing is made for a job that never ran"
    with default_class(cluster, pong.namespace, annotation):
        await pong.resume()
    assert set(await pong.pods()) == {"replay-0", "learner", "actor-0"}
    assert (await claims(pong))["pong-learner"] == "4Gi"
    on_claim = {"persistentVolumeClaim": {"claimName": "pong-learner"}}
    assert await run_folder(pong) == on_claim
    await pong.end("learner")
    pong.next_operator()  # when there is no default class any more
    await pong.settle()
    assert await run_folder(pong) == on_claim, "what was decided at the start stays"


async def test_where_no_class_is_the_default_the_job_runs_and_says_what_a_lost_pod_costs(
    cluster: ControlPlane, pong: OneJob
) -> None:
    await pong.start(replay=WITHOUT_A_LOG)
    assert (await run_folder(pong), await claims(pong)) == ({"emptyDir": {}}, {})
    with default_class(cluster, pong.namespace, STABLE):
        await pong.end("learner")
        await pong.settle()
        assert await run_folder(pong) == {"emptyDir": {}}, "a job that runs is made as it was started"


async def test_a_namespace_that_allows_no_claim_still_runs_the_job(cluster: ControlPlane, pong: OneJob) -> None:
    set_quota(cluster, pong.namespace, "requests.storage", most="1Gi", used=0)
    with default_class(cluster, pong.namespace, STABLE):
        await pong.start(replay=WITHOUT_A_LOG)
    assert await run_folder(pong) == {"emptyDir": {}}


async def test_one_claim_is_tried_for_the_jobs_of_a_namespace_until_one_is_refused(
    cluster: ControlPlane, viewer: Client, client: BreakingClient, run: Run, namespace: str
) -> None:
    async def tries(name: str) -> int:
        job = OneJob(viewer, client, run, name)
        await job.create(replay=WITHOUT_A_LOG)
        client.reset()
        await job.turn()
        return client.calls["try", "persistentvolumeclaims"]

    with default_class(cluster, namespace, STABLE):
        assert [await tries(name) for name in ("first", "second")] == [1, 0]
        set_quota(cluster, namespace, "persistentvolumeclaims", most=2, used=2)
        assert [await tries(name) for name in ("refused", "without")] == [0, 1]
        set_quota(
            cluster, namespace, "persistentvolumeclaims", most=9, used=2
        )  # for what asks whether the class is gone
    without = OneJob(viewer, client, run, "without")
    assert sorted(await claims(without)) == ["first-learner", "second-learner"]
    assert "learner" in await without.pods()

"""Another operator on a running job: it restarts nothing, and what it starts is made as the job was started."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.resources import CONFIG_MAPS, RLJOBS, Object
from rljob_operator.kube.render import rendering
from rljob_operator.kube.render.settings import Settings

from tests.cluster.reconciling import (
    TWO_ACTORS,
    BreakingClient,
    Kubelet,
    Run,
    bring_up,
    condition,
    started,
    status_of,
    take_down,
    written,
)

OLD, NEW = Settings(image="rl:1"), Settings(image="rl:2")
ALL = ("replay-0", "learner", "actor-0", "actor-1")


def images(pods: Mapping[str, Sequence[Object]]) -> dict[str, set[str]]:
    """Member -> images of its pod's containers."""
    found = {}
    for member, (pod,) in pods.items():
        spec = pod["spec"]
        found[member] = {each["image"] for each in (*spec["containers"], *spec.get("initContainers", ()))}
    return found


async def patch(viewer: Client, namespace: str, **spec: object) -> None:
    await viewer.patch(RLJOBS, namespace, "pong", {"spec": spec})


async def configured(viewer: Client, namespace: str) -> object:
    """What roles read when they start."""
    return (await viewer.get(CONFIG_MAPS, namespace, "pong-job"))["data"]


async def suspend(run: Run, viewer: Client, kubelet: Kubelet, namespace: str) -> None:
    await patch(viewer, namespace, suspend=True)
    await take_down(run, viewer, kubelet, "pong")
    left = [pod for pods in (await kubelet.pods("pong")).values() for pod in pods]
    assert all(pod["status"]["phase"] == "Failed" for pod in left), "what had ended before stays to be read"


async def test_a_running_job_keeps_its_image_until_it_is_suspended(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, namespace: str
) -> None:
    await started(
        Run(client, namespace, OLD), viewer, kubelet, written(namespace, "pong", backoffLimit=9, **TWO_ACTORS)
    )
    before = await kubelet.pods("pong")
    assert images(before) == {member: {"rl:1"} for member in ALL}

    run = Run(client, namespace, NEW)
    await run.settle(viewer, "pong")
    assert {member: pod["metadata"]["uid"] for member, (pod,) in (await kubelet.pods("pong")).items()} == {
        member: pod["metadata"]["uid"] for member, (pod,) in before.items()
    }
    await kubelet.end(before["actor-1"][0], 1)
    await kubelet.end(before["replay-0"][0], 1)
    await patch(viewer, namespace, actors={"replicas": 3})
    for _ in range(4):  # an end is followed by a start half a second later
        await run.settle(viewer, "pong")
        await asyncio.sleep(0.3)
    after = await kubelet.pods("pong")
    assert images(after) == {member: {"rl:1"} for member in (*ALL, "actor-2")}
    assert after["actor-1"][0]["metadata"]["uid"] != before["actor-1"][0]["metadata"]["uid"]
    status = await status_of(viewer, namespace, "pong")
    kept = {name: value for name, value in status["controller"]["rendering"].items() if name != "settings"}
    assert kept == {"version": rendering.version(), "image": "rl:1", "gpuImage": ""}

    await kubelet.start("pong")
    await suspend(run, viewer, kubelet, namespace)
    await patch(viewer, namespace, suspend=False)
    await bring_up(run, viewer, kubelet, "pong")
    assert images(await kubelet.pods("pong")) == {member: {"rl:2"} for member in (*ALL, "actor-2")}


async def test_a_release_that_makes_other_pods_adds_none_to_those_that_run(
    viewer: Client, client: BreakingClient, kubelet: Kubelet, run: Run, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await started(Run(client, namespace), viewer, kubelet, written(namespace, "pong", backoffLimit=9, **TWO_ACTORS))
    later = rendering.version() + 1
    monkeypatch.setattr(rendering, "version", lambda: later)
    read = await configured(viewer, namespace)
    await patch(viewer, namespace, actors={"replicas": 1}, backoffLimit=7)
    await kubelet.end(await kubelet.pod("pong", "actor-1"), 1)
    for _ in range(4):
        await run.settle(viewer, "pong")
        await asyncio.sleep(0.3)
    pods = await kubelet.pods("pong")
    assert [member for member, each in pods.items() if each[0]["status"]["phase"] == "Running"] == [
        "actor-0",
        "learner",
        "replay-0",
    ]
    status = await status_of(viewer, namespace, "pong")
    assert condition(status, "Accepted") == ("False", "RenderingUnknown")
    assert status["actors"]["ready"] == 1
    assert await configured(viewer, namespace) == read

    await suspend(run, viewer, kubelet, namespace)
    await patch(viewer, namespace, suspend=False)
    await bring_up(run, viewer, kubelet, "pong")
    status = await status_of(viewer, namespace, "pong")
    assert condition(status, "Accepted") == ("True", "Valid")
    assert (status["actors"]["ready"], status["controller"]["rendering"]["version"]) == (1, later)

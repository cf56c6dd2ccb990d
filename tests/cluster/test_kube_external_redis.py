"""Who removes a shard's log from a Redis that others run, and when: on a real API server, which checks the Job that does it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from rljob_operator.kube.apiserver.client import Client
from rljob_operator.kube.apiserver.errors import ApiError, Forbidden, TooManyRequests, Unavailable
from rljob_operator.kube.apiserver.resources import JOBS, RLJOBS, Object

from tests.cluster.control_plane import ControlPlane
from tests.cluster.reconciling import Kubelet, Run, bring_up, written
from tests.cluster.test_kube_reconcile import TWO_ACTORS, Clock, at_work, condition, status_of

EXTERNAL = {"url": "redis://redis.db:6379", "secretRef": {"name": "login"}}


def job(namespace: str, name: str = "pong", shards: int = 1, **spec: Any) -> Object:
    found = written(namespace, name, **TWO_ACTORS, backoffLimit=9, **spec)
    found["spec"]["replay"] = {**found["spec"].get("replay", {}), "shards": shards, "redis": {"external": EXTERNAL}}
    return found


async def removals(viewer: Client, namespace: str) -> list[str]:
    """The pods after which the Jobs are named."""
    return sorted(each["metadata"]["name"] for each in (await viewer.list(JOBS, namespace)).items)


async def shard(kubelet: Kubelet, name: str = "pong") -> Object:
    (found,) = (await kubelet.pods(name))["replay-0"]
    return found


def refuse_removals(patch: pytest.MonkeyPatch, client: Client, problem: ApiError) -> None:
    """Have the API server answer so to every Job that is to be made."""
    create = type(client).create

    async def refused(self: Client, resource: Any, document: Object, **options: Any) -> Object:
        if resource is JOBS:
            raise problem
        return await create(self, resource, document, **options)

    patch.setattr(type(client), "create", refused)


def test_a_shard_that_comes_again_keeps_its_log_and_one_of_a_deleted_job_does_not(
    cluster: ControlPlane, namespace: str
) -> None:
    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            stored = await viewer.create(RLJOBS, job(namespace))
            run = Run(client, namespace)
            await bring_up(run, viewer, kubelet, "pong")
            first = await shard(kubelet)
            await kubelet.end(first, 1)
            for _ in range(4):  # an end is followed by a start half a second later
                await run.settle(viewer, "pong")
                await asyncio.sleep(0.3)
            second = await shard(kubelet)
            assert second["metadata"]["uid"] != first["metadata"]["uid"]
            assert await removals(viewer, namespace) == []

            await viewer.delete(RLJOBS, namespace, "pong")
            await Run(client, namespace).turn(viewer, "pong")  # another operator, which has never seen the job
            name = second["metadata"]["name"]
            assert await removals(viewer, namespace) == [name]
            made = await viewer.get(JOBS, namespace, name)
            (container,) = made["spec"]["template"]["spec"]["containers"]
            assert container["command"][-3:] == [
                EXTERNAL["url"], f"{namespace}/pong/{stored['metadata']['uid']}/replay-0", "0",
            ]  # fmt: skip
            await Run(client, namespace).turn(viewer, "pong")
            assert await removals(viewer, namespace) == [name]

    asyncio.run(story())


async def gone(run: Run, viewer: Client, kubelet: Kubelet) -> None:
    for _ in range(5):
        await run.settle(viewer, "pong")
        await kubelet.finish_deleted("pong")
    await run.settle(viewer, "pong")


def test_a_suspended_job_keeps_it_and_a_complete_one_does_not(cluster: ControlPlane, namespace: str) -> None:
    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            await viewer.create(
                RLJOBS, job(namespace, checkpoint={"onSuspend": "Skip"}, successPolicy={"rawFrames": 100})
            )
            clock = Clock()
            run = Run(client, namespace, now=clock.now, monotonic=clock.monotonic)
            await bring_up(run, viewer, kubelet, "pong")
            await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": True}})
            await gone(run, viewer, kubelet)
            assert condition(await status_of(viewer, namespace, "pong"), "Suspended")[0] == "True"
            assert await removals(viewer, namespace) == []

            await viewer.patch(RLJOBS, namespace, "pong", {"spec": {"suspend": False}})
            await bring_up(run, viewer, kubelet, "pong")
            name = (await shard(kubelet))["metadata"]["name"]
            clock.updates = 1000
            run.poll.answers[namespace, "pong"] = clock.answer()
            await gone(run, viewer, kubelet)
            assert condition(await status_of(viewer, namespace, "pong"), "Complete")[0] == "True"
            assert await removals(viewer, namespace) == [name]

    asyncio.run(story())


def test_each_shard_of_a_complete_job_loses_its_log(cluster: ControlPlane, namespace: str) -> None:
    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            await viewer.create(RLJOBS, job(namespace, shards=2, successPolicy={"rawFrames": 100}))
            clock = Clock()
            run = Run(client, namespace, now=clock.now, monotonic=clock.monotonic)
            await bring_up(run, viewer, kubelet, "pong")
            shards = [(await kubelet.pods("pong"))[f"replay-{number}"][0] for number in (0, 1)]
            clock.updates = 1000
            run.poll.answers[namespace, "pong"] = clock.answer()
            await gone(run, viewer, kubelet)
            assert condition(await status_of(viewer, namespace, "pong"), "Complete")[0] == "True"
            assert await removals(viewer, namespace) == sorted(each["metadata"]["name"] for each in shards)

    asyncio.run(story())


@pytest.mark.parametrize(
    "problem", [TooManyRequests("later", code=429), Unavailable("no answer")], ids=["429", "silence"]
)
def test_a_removal_that_has_to_wait_is_made_at_the_next_look(
    cluster: ControlPlane, namespace: str, problem: ApiError, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            await viewer.create(RLJOBS, job(namespace))
            run = Run(client, namespace)
            await bring_up(run, viewer, kubelet, "pong")
            name = (await shard(kubelet))["metadata"]["name"]
            await viewer.delete(RLJOBS, namespace, "pong")
            with monkeypatch.context() as patch:
                refuse_removals(patch, client, problem)
                with pytest.raises(type(problem)):
                    await run.turn(viewer, "pong")
            assert await removals(viewer, namespace) == []
            await run.turn(viewer, "pong")
            assert await removals(viewer, namespace) == [name]

    asyncio.run(story())


@pytest.mark.parametrize(
    "problem",
    [Forbidden("exceeded quota", code=403), Unavailable("failed calling webhook", code=500)],
    ids=["quota", "webhook"],
)
@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
def test_a_removal_that_may_not_be_made_keeps_nothing(
    cluster: ControlPlane,
    namespace: str,
    propagation: str,
    problem: ApiError,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        async with at_work(cluster, namespace) as (viewer, client, kubelet):
            await viewer.create(RLJOBS, job(namespace))
            run = Run(client, namespace)
            await bring_up(run, viewer, kubelet, "pong")
            refuse_removals(monkeypatch, client, problem)
            await viewer.delete(RLJOBS, namespace, "pong", propagation=propagation)
            await run.turn(viewer, "pong")
            assert await removals(viewer, namespace) == []
            assert f"stays until it expires: {problem}" in caplog.text

    asyncio.run(story())
